"""HTTP beside a running graph: calls and events with `--serve`, probes and metrics alone with `--health`. Loaded only then.

server (one way to read a request, uvicorn) -> app (routes) -> address (who may) -> site (threads, bodies) -> graph
"""
