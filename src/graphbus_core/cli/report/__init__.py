"""A negotiation session as one HTML page: pure functions from what is known of the session to bytes."""
