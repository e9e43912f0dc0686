"""Instruments: middleware that shows what a running graph does: trace, profile, breakpoints."""
