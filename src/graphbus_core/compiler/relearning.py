"""What artifacts of an older format do not say, read from the sources that they describe."""

from __future__ import annotations

from pathlib import Path

from graphbus_core import settings, store
from graphbus_core.compiler.discover import ModuleFile, ModuleIndex
from graphbus_core.compiler.disk import DiskReader, ImportsOutside
from graphbus_core.compiler.reading.imports import needed_by
from graphbus_core.errors import ArtifactError, Place, raise_all
from graphbus_core.model.artifacts import SCHEMA_VERSION, BuildArtifacts
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.store.migration import Learned


def learn_imports(folder: Path, artifacts: BuildArtifacts) -> Learned:
    """Read what the agents import now; nothing is imported or written.

    Raises:
        ArtifactError: GBE512 for a source file that is not what the artifacts describe; SeveralErrors for more than one.
        UsageError: The settings of the project cannot be read.
    """
    manifest = artifacts.manifest
    if manifest is None:
        return Learned()
    drifted = store.verify_sources(folder, manifest)
    raise_all(ArtifactError("GBE512", where=Place(path), wanted=SCHEMA_VERSION) for path in drifted)
    root = Path(store.project_root(folder, manifest))
    config = ResolvedBuild(root=str(root), paths=(), settings=settings.load(root), dry_run=True)
    agents = tuple(sorted({ModuleFile(agent.path, agent.module) for agent in artifacts.agents.agents}))
    index = ModuleIndex(str(root), agents, manifest.import_roots, manifest.roots)
    outside = ImportsOutside(config, DiskReader(config))
    modules = [*(agent.module for agent in agents), *config.middleware_modules]
    needed = needed_by(modules, index, outside.names_in, manifest.sources)
    return Learned(outside.digests_of(needed, {}), needed.third_party)
