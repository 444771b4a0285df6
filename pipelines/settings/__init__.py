"""Settings: the schema of headroom.toml, its loading and its checks."""
