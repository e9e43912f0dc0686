"""How findings and verdicts are written, and mended."""
