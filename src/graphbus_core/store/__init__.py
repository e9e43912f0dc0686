"""The folder `.graphbus/` on disk: artifacts are written atomically, and verified when they are read.

    reading     load artifacts, verify them and the sources        writing     write all artifacts or none
    migration   old formats -> the present one                     stamps      detect changed files
    cache       sealed files that only save time                   folders     folders opened without following links

The names of `reading` are exported here, because a graph that starts needs no others; import the other modules themselves.
"""

from __future__ import annotations

from graphbus_core.store.reading import ARTIFACTS as ARTIFACTS
from graphbus_core.store.reading import MANIFEST as MANIFEST
from graphbus_core.store.reading import BuildArtifacts as BuildArtifacts
from graphbus_core.store.reading import StrPath as StrPath
from graphbus_core.store.reading import digest_of as digest_of
from graphbus_core.store.reading import find_changed_sources as find_changed_sources
from graphbus_core.store.reading import find_drift as find_drift
from graphbus_core.store.reading import find_problems as find_problems
from graphbus_core.store.reading import has_artifacts as has_artifacts
from graphbus_core.store.reading import load as load
from graphbus_core.store.reading import load_artifact as load_artifact
from graphbus_core.store.reading import load_manifest as load_manifest
from graphbus_core.store.reading import needed_files as needed_files
from graphbus_core.store.reading import project_root as project_root
from graphbus_core.store.reading import read_version as read_version
