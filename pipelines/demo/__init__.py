"""The demo: from nothing to a decision that was carried out."""
