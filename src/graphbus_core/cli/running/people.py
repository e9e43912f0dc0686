"""The people at the terminal of `graphbus run`: who stops at breakpoints, and who types commands with `-i`."""

from __future__ import annotations

import sys
from pathlib import Path

from graphbus_core import settings
from graphbus_core.cli.running.instruments import InstrumentOptions, Instruments, check
from graphbus_core.cli.running.terminal import Terminal
from graphbus_core.errors import RunError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.config import RuntimeRequest


class People:
    """Who is at the terminal, and what they want of the graph.

    Attributes:
        is_typing: A person is at the prompt, and not a pipe: what goes wrong has been seen and is no exit status.
        total: How many lines were commands.
        refused: How many of them were refused.
    """

    def __init__(self, terminal: Terminal, instruments: Instruments, options: InstrumentOptions) -> None:
        self.is_typing = options.is_interactive and sys.stdin.isatty() and sys.stdout.isatty()
        self.total = self.refused = 0
        self._terminal = terminal
        self._instruments = instruments
        self._options = options
        self._artifacts: BuildArtifacts | None = None

    def meet(self, graph: LiveGraph, artifacts: BuildArtifacts) -> None:
        """Get to know the graph when it is ready.

        Raises:
            RunError: GBE682 for a breakpoint that it does not have.
        """
        self._artifacts = artifacts
        check(self._instruments, graph, artifacts)

    def talk(self, graph: LiveGraph) -> None:
        """Do what they type until they leave."""
        from graphbus_core.cli.running.prompt import Prompt

        if self._artifacts is None:
            return
        folder = Path(settings.resolve_run(RuntimeRequest(artifacts=self._options.artifacts)).state_dir)
        prompt = Prompt(graph, self._artifacts, self._instruments, self._terminal, folder, is_typed=self.is_typing)
        try:
            prompt.run()
        finally:
            self.total, self.refused = prompt.total, prompt.refused

    def raise_for_refused(self) -> None:
        """Raise RunError GBE688 when lines from a pipe were refused."""
        if self.refused and not self.is_typing:
            raise RunError("GBE688", count=self.refused, total=self.total)
