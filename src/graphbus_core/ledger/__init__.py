"""Ledgers: engines that remember the events of a graph, so that they survive a crash and can be handled by several processes."""
