"""A negotiation session as one HTML page: a template, and pure functions that give its values."""
