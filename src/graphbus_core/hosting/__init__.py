"""What surrounds a running graph: its agents, their handlers, their calls and their shutdown."""
