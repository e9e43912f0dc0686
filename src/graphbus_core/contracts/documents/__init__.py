"""The promises of agents in the formats of others: pure functions from artifacts to documents, always the same ones.

parts    what there is to describe, and under which names
classes  records that bear a name are described once
"""
