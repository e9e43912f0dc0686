"""`.graphbus/` on disk: artifacts written all or nothing and verified when they are read, and stamps that tell what changed.

    reading     load, verify; do sources fit the artifacts?        writing     all files or none
    migration   old formats -> that of today                       stamps      what changed since
    cache       what only saves time, and the seals that prove it  folders     folders without links

The first is offered here. Who needs the others imports them: a graph that starts only reads and verifies.
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
