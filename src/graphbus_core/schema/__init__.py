"""Types of payloads, arguments and results: reading, relating and checking them, below `model/` and the bus."""
