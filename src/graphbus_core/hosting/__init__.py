"""Runs a graph: agents are imported, created, connected to the bus, called, observed and stopped."""
