"""What agents promise each other: pure functions over artifacts. The edges and whether they hold, what changed, what it breaks.

artifacts       ->  edges: each method and topic that somebody uses, and whether both ends fit
old, new        ->  compare: each change, compatible or breaking, with the edges it breaks  ->  versions: the next number
artifacts       ->  documents: JSON Schema and AsyncAPI (OpenAPI comes from `hosting.serving.openapi`)
"""
