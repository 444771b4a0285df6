"""The `Store` port in SQLite and in Postgres."""
