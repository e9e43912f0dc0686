"""The terminal of `graphbus run` as its stages need it: breakpoints are checked, and the prompt of `-i` is run."""

from __future__ import annotations

import sys
from pathlib import Path

from graphbus_core import settings
from graphbus_core.cli.running.instruments import InstrumentOptions, Instruments, check
from graphbus_core.cli.running.terminal import Terminal
from graphbus_core.errors import RunError
from graphbus_core.hosting.graph import LiveGraph
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.config import RuntimeConfig


class People:
    """The person or the pipe at the terminal.

    Attributes:
        is_typing: A person is at the prompt, and not a pipe: a failure was seen there, and does not change the exit status.
        total: How many lines were commands.
        refused: How many of them were refused.
    """

    def __init__(self, terminal: Terminal, instruments: Instruments, options: InstrumentOptions) -> None:
        self.is_typing = options.is_interactive and sys.stdin.isatty() and sys.stdout.isatty()
        self.total = self.refused = 0
        self._terminal = terminal
        self._instruments = instruments
        self._options = options

    def meet(self, graph: LiveGraph, artifacts: BuildArtifacts) -> None:
        """Check the breakpoints when the graph is ready.

        Raises:
            RunError: GBE682 for a breakpoint that it does not have.
        """
        check(self._instruments, graph, artifacts)

    def talk(self, graph: LiveGraph) -> None:
        """Do what is typed until the input ends."""
        from graphbus_core.cli.running.prompt import Prompt

        folder = Path(settings.resolve_run(RuntimeConfig(artifacts=self._options.artifacts)).state_dir)
        prompt = Prompt(graph, self._instruments, self._terminal, folder, is_typed=self.is_typing)
        try:
            prompt.run()
        finally:
            self.total, self.refused = prompt.total, prompt.refused

    def raise_for_refused(self) -> None:
        """Raise RunError GBE688 when lines from a pipe were refused."""
        if self.refused and not self.is_typing:
            raise RunError("GBE688", count=self.refused, total=self.total)
