"""Plain typed data that all other packages use; no input and output."""
