"""What image, manifests and pipelines agree on: where things are in a container, who runs them, which ports are open."""

from __future__ import annotations

from collections.abc import Mapping

Files = Mapping[str, str | bytes]
"""Path, relative and with `/` -> content."""

HOME = "/app"
"""The project in the image; its artifacts are in `/app/.graphbus`. Nobody may write there."""
STATE = "/var/lib/graphbus"
"""What a running graph writes: the one folder of a container that is not read-only."""
CONFIG = "/etc/graphbus/graphbus.toml"
"""Settings of the place where it runs, for `GRAPHBUS_CONFIG`."""
USER_ID = 65532
"""Nobody in particular: it has no name, no home and no shell."""
HEALTH_PORT = 8080
"""`/livez /readyz /startupz /metrics`, without a token."""
SERVE_PORT = 8765
"""Calls and events over HTTP, with a token, for graphs that are served."""
