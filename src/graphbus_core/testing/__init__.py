"""The testing kit: a bus that records, graphs for tests, a clock that stands still, nodes that follow a script."""
