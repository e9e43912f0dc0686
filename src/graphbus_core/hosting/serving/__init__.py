"""HTTP servers of a running graph: `--serve` for calls and events, `--health` for probes and metrics. Imported only then.

server (uvicorn) -> app (routes, threads, bodies) -> address (authorization) -> graph
"""
