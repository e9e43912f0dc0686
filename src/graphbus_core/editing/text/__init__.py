"""Symbols and spans in the bytes of a source file."""
