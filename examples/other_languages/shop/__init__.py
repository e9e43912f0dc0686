"""A shop whose agents are represented by programs in other languages."""
