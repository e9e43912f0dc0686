"""Ground: plain typed data that every floor shares; no input, no output."""
