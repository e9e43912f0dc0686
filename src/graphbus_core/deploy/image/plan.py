"""What goes into an image, and how it starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from graphbus_core.deploy.facts import HEALTH_PORT, SERVE_PORT


class ImagePlan(NamedTuple):
    """Everything that the files follow from. Paths are relative to the project, with `/`.

    Attributes:
        command: What writes the same files again.
        base: The image to build on.
        folder: Where our own files are: `docker`.
        wheel: The name of the wheel of the runtime, in that folder.
        artifacts: The artifact folder.
        artifact_files: The files in it.
        sources: Each source file that a run needs.
        includes: Further files, and folders with a `/` at their end.
        requirements: The project's own requirements; empty: it has none.
        third_party: What it must be possible to import.
        labels: OCI labels.
        is_served: Calls and events over HTTP.
        writable: Folders that agents may write to, beside the state.
    """

    command: str
    base: str
    folder: str
    wheel: str
    artifacts: str
    artifact_files: tuple[str, ...]
    sources: tuple[str, ...]
    includes: tuple[str, ...] = ()
    requirements: str = ""
    third_party: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    is_served: bool = False
    writable: tuple[str, ...] = ()


def start_arguments(*, is_served: bool) -> tuple[str, ...]:
    """Give what the runtime in an image is started with."""
    served = ("--serve", f"0.0.0.0:{SERVE_PORT}") if is_served else ()
    return ("--health", f"0.0.0.0:{HEALTH_PORT}", *served)
