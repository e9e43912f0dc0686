"""Readers: they turn the source text of other frameworks into messages, so that their builds can be compared both ways."""
