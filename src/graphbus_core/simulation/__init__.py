"""The whole graph under a seed: `graphbus simulate` runs it on simulated time, with faults that a seed chooses.

subject   the graph, divided into nodes      loop, surroundings   time, chance and order under a seed
nodes     processes that crash               faults               what goes wrong, as plain values
runs      one run, and the reference         record, invariants   what must hold afterwards
search    many seeds, and the smallest failure
"""

from graphbus_core.simulation.invariants import View, invariant

__all__ = ["View", "invariant"]
