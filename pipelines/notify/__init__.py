"""Messages to people, as `[notify]` asks for them: what is told, how it leaves, and when."""
