"""`--watch` of `graphbus run`: a companion that follows the source files of the graph that runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from graphbus_core import runtime
from graphbus_core.cli import console
from graphbus_core.cli.running.terminal import Terminal
from graphbus_core.errors import UsageError
from graphbus_core.hosting.graph import LiveGraph


def followers(terminal: Terminal, *, is_watched: bool, as_json: bool) -> tuple[runtime.Companion, ...]:
    """Make the companion that was asked for; at a prompt it talks above the line.

    Raises:
        UsageError: GBE163 when watchfiles is not installed.
    """
    if not is_watched:
        return ()
    from graphbus_core.cli.running.watching import need

    need("--watch")
    write = console.say if as_json else console.out
    return (lambda graph: _following(graph, lambda text: terminal.say_above(text, write)),)


@contextmanager
def _following(graph: LiveGraph, write: Callable[[str], None]) -> Iterator[None]:
    """Build and reload on each save.

    Raises:
        UsageError: GBE165 for artifacts that are not where a build of their project writes them, and what reading the settings
            raises.
    """
    from graphbus_core.cli.running import development_text as text
    from graphbus_core.cli.running.development import Development, Saved, paths_of
    from graphbus_core.cli.running.watching import Watcher

    def told(saved: Saved) -> None:
        write("\n".join(text.lines(saved, development.root, development.project)))
        console.flush()

    def failed(error: UsageError) -> None:
        console.error(error)

    development = Development(paths_of(graph), told)
    config = development.config
    if graph.origin is None or Path(graph.origin.config.artifacts_dir) != Path(config.artifacts_dir).resolve():
        raise UsageError("GBE165", path=config.settings.artifacts)
    development.remember_findings()
    with (
        development.beside(graph),
        Watcher(Path(config.root), development.on_saved, failed, exclude=development.excluded),
    ):
        watched = ", ".join(os.path.relpath(path) for path in paths_of(graph))
        console.say(f"[RUNTIME] Watching {console.plain(watched)}: what is saved is checked, built and reloaded.")
        yield
