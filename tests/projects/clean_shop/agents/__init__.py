"""A shop whose agents call each other, share typed payloads and inherit from a base."""
