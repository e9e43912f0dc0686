"""HTTP beside a running graph: calls and events with `--serve`, probes and metrics alone with `--health`. Loaded only then.

request -> server (connections, time) -> app (routes) -> guard (who may) -> bodies (what is JSON) -> crew (threads) -> graph
"""
