"""What came of a session, for those who write it down and bring it to the disk."""

from __future__ import annotations

from typing import NamedTuple

from graphbus_core.editing.workspace import Workspace
from graphbus_core.model.proposals import Negotiations


class Outcome(NamedTuple):
    """What came of it, and the workspace that holds every accepted change."""

    negotiations: Negotiations
    workspace: Workspace
