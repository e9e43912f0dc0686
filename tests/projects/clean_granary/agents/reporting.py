"""A base class for agents that leave something in writing."""

from __future__ import annotations

from pathlib import Path

from graphbus_core import GraphBusNode


class BaseReporting(GraphBusNode):
    """Has a folder of reports."""

    folder = "reports"

    def keep(self, name: str, text: str) -> str:
        """Write a report, and give its path."""
        path = Path(self.folder, name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return str(path)

    def heading(self, title: str) -> str:
        """Give the first lines of a report."""
        return f"{title}\n{'=' * len(title)}\n"
