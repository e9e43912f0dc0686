"""The files that a graph keeps in its `state_dir`, as `graphbus state` and `graphbus dlq` open them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import click

from graphbus_core import settings
from graphbus_core.errors import ArtifactError, Place, UsageError
from graphbus_core.model.config import ResolvedRun, RuntimeConfig

ARTIFACTS = ".graphbus"
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
OF_ARTIFACTS = click.option(
    "--artifacts", default=ARTIFACTS, metavar="DIR", help="The artifact folder of the graph (.graphbus)."
)
YES = click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
LONGEST_CELL = 60


class _File(Protocol):
    def close(self) -> None:
        """Close the file."""


F = TypeVar("F", bound=_File)


def resolved(artifacts: str) -> ResolvedRun:
    """How the graph would run."""
    return settings.resolve_run(RuntimeConfig(artifacts=artifacts))


def path_of(artifacts: str, name: str) -> Path:
    """Where the graph keeps a file."""
    return Path(resolved(artifacts).state_dir) / name


@contextmanager
def opened(artifacts: str, name: str, open_file: Callable[[str], F]) -> Iterator[F | None]:
    """Open a file of the graph; None when there is none, and none is made.

    Raises:
        ArtifactError: GBE501 there is no such folder either.
    """
    path = path_of(artifacts, name)
    if path.exists():
        with closing(open_file(str(path))) as file:
            yield file
    elif Path(artifacts).is_dir():
        yield None
    else:
        raise ArtifactError("GBE501", where=Place(artifacts))


def ask(question: str, nobody: UsageError) -> None:
    """Ask for a confirmation.

    Args:
        question: What is asked.
        nobody: Raised without a terminal.

    Raises:
        Abort: The answer was no.
    """
    if not sys.stdin.isatty():
        raise nobody
    click.confirm(question, abort=True, err=True)
