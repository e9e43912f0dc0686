"""The contracts of agents, as pure functions over artifacts: which edges hold, what has changed, and what a change breaks.

artifacts       ->  edges: each edge of the graph, and whether both of its ends fit together
old, new        ->  compare: each change, compatible or breaking, with the edges it breaks  ->  versions: the next version
artifacts       ->  documents: JSON Schema and AsyncAPI (OpenAPI comes from `hosting.serving.openapi`)
"""
