"""Findings -> changes that mend them."""
