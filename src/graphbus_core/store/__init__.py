"""`.graphbus/` on disk: artifacts written all or nothing and verified when they are read, and stamps that tell what changed.

    reading     load, verify                         cache       what only saves time
    writing     all files or none                    stamps      what changed since
    upgrades    old formats -> that of today         migration   the same for a folder
    versions    what else says its version

The first is imported with the package; `cache`, `writing` and `stamps` when something of theirs is first used, for a graph that
starts only reads and verifies. The others are not offered here: who needs them imports them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from graphbus_core.store.reading import ARTIFACTS as ARTIFACTS
from graphbus_core.store.reading import MANIFEST as MANIFEST
from graphbus_core.store.reading import StrPath as StrPath
from graphbus_core.store.reading import digest_of as digest_of
from graphbus_core.store.reading import find_problems as find_problems
from graphbus_core.store.reading import load as load
from graphbus_core.store.reading import load_artifact as load_artifact
from graphbus_core.store.reading import load_manifest as load_manifest
from graphbus_core.store.reading import project_root as project_root
from graphbus_core.store.reading import read_version as read_version
from graphbus_core.store.reading import verify_imports as verify_imports
from graphbus_core.store.reading import verify_sources as verify_sources

if TYPE_CHECKING:
    from graphbus_core.store.cache import CACHE as CACHE
    from graphbus_core.store.cache import open_plain as open_plain
    from graphbus_core.store.cache import read_cache as read_cache
    from graphbus_core.store.cache import write_cache as write_cache
    from graphbus_core.store.stamps import ABSENT as ABSENT
    from graphbus_core.store.stamps import Fingerprint as Fingerprint
    from graphbus_core.store.stamps import Look as Look
    from graphbus_core.store.stamps import Status as Status
    from graphbus_core.store.stamps import look_at as look_at
    from graphbus_core.store.writing import encode as encode
    from graphbus_core.store.writing import save as save
    from graphbus_core.store.writing import write_atomic as write_atomic

_HOME = {
    "CACHE": "cache",
    "open_plain": "cache",
    "read_cache": "cache",
    "write_cache": "cache",
    "ABSENT": "stamps",
    "Fingerprint": "stamps",
    "Look": "stamps",
    "Status": "stamps",
    "look_at": "stamps",
    "encode": "writing",
    "save": "writing",
    "write_atomic": "writing",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
