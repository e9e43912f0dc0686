"""Instruments: middleware for observing a running graph: trace, profile and breakpoints."""
