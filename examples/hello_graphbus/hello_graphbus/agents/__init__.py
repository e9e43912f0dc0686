"""The agents of the graph, one file each."""
