"""Event: what a handler receives."""
