"""What came of a build."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from graphbus_core import store
from graphbus_core.compiler.memory import Tally
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.findings import Finding
from graphbus_core.model.proposals import FileChange, Negotiations
from graphbus_core.model.spending import Spend


class BuildResult(NamedTuple):
    """What came of a build.

    Attributes:
        tally: How much there is in the graph.
        built: The artifacts of this build; None when nothing had changed, see `artifacts`.
        findings: What the rules still find in the sources as they are now.
        applied: The files that agents changed.
        diffs: Path -> unified diff of what they changed, or would have in a dry run.
        spent: What the negotiation has cost.
        locked: In a frozen build, how many agents the lock covers.
        is_unchanged: Nothing had changed since the last build, so that nothing was done.
    """

    config: ResolvedBuild
    tally: Tally
    built: BuildArtifacts | None = None
    findings: tuple[Finding, ...] = ()
    negotiations: Negotiations | None = None
    applied: tuple[FileChange, ...] = ()
    diffs: Mapping[str, str] = {}
    is_unchanged: bool = False
    was_dry_run: bool = False
    spent: Spend = Spend()
    locked: int = 0

    @property
    def artifacts(self) -> BuildArtifacts:
        """The artifacts of this build; when nothing had changed, those on disk, read and verified.

        Raises:
            ArtifactError: They were damaged since.
        """
        return self.built or store.load(Path(self.config.artifacts_dir))
