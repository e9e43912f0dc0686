"""The files of a graph that keeps something: looked at before it starts, so that none starts whose letters would be lost."""

from __future__ import annotations

from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.hosting.state import FILE as STATE_FILE
from graphbus_core.hosting.state import open_database
from graphbus_core.model.config import ResolvedRun

_HEAD = b"SQLite format 3\0"


def state_path(config: ResolvedRun) -> str:
    """Give the file of the states; empty for a graph that has no folder."""
    return f"{config.state_dir}/{STATE_FILE}" if config.state_dir else ""


def look_at_files(graph: LiveGraph, config: ResolvedRun) -> None:
    """Refuse files that cannot be used, and let a graph that is to keep its dead letters do so.

    Raises:
        RunError: GBE643 damaged, of another program or of a newer GraphBus; GBE645 it cannot be opened or made.
    """
    _check_states(state_path(config))
    if config.settings.keep_dead_letters:
        from graphbus_core.hosting.dead_letters import FILE, Keeper

        keeper = Keeper(f"{config.state_dir}/{FILE}")
        keeper.open()
        graph.bus.keeper = keeper
        graph.at_end(keeper.close)


def _check_states(path: str) -> None:
    """A file that is not there is no problem: it is made when an agent first uses its state.

    Only the first bytes are read. SQLite, which takes a while to import, is asked about those that are wrong; damage further on
    is found when a state is used.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(len(_HEAD))
    except FileNotFoundError:
        return
    except OSError:
        head = b"?"
    if head not in (b"", _HEAD):
        open_database(path).close()
