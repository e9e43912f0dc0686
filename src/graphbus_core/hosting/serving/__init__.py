"""HTTP beside a running graph: calls and events with `--serve`, probes and metrics alone with `--health`. Loaded only then.

server (connections, time) -> wire (one way to read it) -> uvicorn -> app (routes) -> guard (who may) -> site, crew -> graph
"""
