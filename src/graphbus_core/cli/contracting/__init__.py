"""The parts of `graphbus contract`: validating, comparing, exporting, and what each shows."""
