"""HTTP beside a running graph: calls and events with `--serve`, probes and metrics alone with `--health`. Loaded only then.

server (uvicorn) -> app (routes, threads, bodies) -> address (who may) -> graph
"""
