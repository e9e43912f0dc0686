"""Negotiation: a pure engine with its votes, the agents, the driver that connects them, and what is kept of a session."""
