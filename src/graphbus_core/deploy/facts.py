"""What image, manifests and pipelines agree on: where things are in a container, who runs them, which ports are open."""

from __future__ import annotations

from collections.abc import Mapping

from graphbus_core.model.powers import Powers

Files = Mapping[str, str | bytes]
"""Path, relative and with `/` -> content."""

HOME = "/app"
"""The project in the image; its artifacts are in `/app/.graphbus`. Nobody may write there."""
STATE = "/var/lib/graphbus"
"""What a running graph writes: the one folder of a container that is not read-only."""
CONFIG_FOLDER = "/etc/graphbus"
CONFIG = f"{CONFIG_FOLDER}/graphbus.toml"
"""Settings of the place where it runs, for `GRAPHBUS_CONFIG`."""
USER_ID = 65532
"""A user without a name, a home and a shell."""
HEALTH_PORT = 8080
"""`/livez /readyz /startupz /metrics`, without a token."""
SERVE_PORT = 8765
"""Calls and events over HTTP, with a token, for graphs that are served."""

CONFINED_RUNTIME = ("python", "-m", "graphbus_core.runtime", "--confined")
"""How a container starts: agents have the powers that the project declares, and no others."""


def folders_to_write(powers: Powers) -> tuple[str, ...]:
    """Return the folders of a container that agents may write to, beside the state: those declared with a `/` at their end.

    Other paths are files, or unknown; whoever declares them mounts them.
    """
    declared = (path.removeprefix("./").rstrip("/") for path in powers.write if path.endswith("/"))
    places = (path if path.startswith("/") else f"{HOME}/{path}" for path in declared)
    return tuple(dict.fromkeys(path for path in places if path not in (STATE, "/tmp")))  # noqa: S108 - of the container
