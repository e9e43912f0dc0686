"""The wheel that goes into an image: the modules of Runtime Mode, as they are installed, as the same bytes every time.

What its doors do not import is not in it, and so cannot be imported in a container: the build, the command line, everything that
asks a model.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from io import BytesIO
from modulefinder import ModuleFinder
from pathlib import Path
from typing import NamedTuple
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import graphbus_core

DOORS = ("graphbus_core.runtime", "graphbus_core.hosting.serving.health")
"""The two commands of a container. The names that agents import come with the package itself."""
LEFT_BEHIND = "graphbus_core.build"
"""The package names `build_graph` as well, for those who have it."""
_NAME = "graphbus_runtime"
_METADATA = f"""\
Metadata-Version: 2.4
Name: {_NAME.replace("_", "-")}
Version: {graphbus_core.__version__}
Summary: Runtime Mode of GraphBus, without what builds.
License-Expression: MIT
Requires-Python: >=3.11
Requires-Dist: msgspec>=0.20
"""
_WHEEL = "Wheel-Version: 1.0\nGenerator: graphbus\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


class Wheel(NamedTuple):
    """A wheel, ready to be written."""

    name: str
    data: bytes

    @property
    def sha256(self) -> str:
        """The hash, as files of requirements write it."""
        return sha256(self.data).hexdigest()


@cache
def make_wheel() -> Wheel:
    """Pack the runtime. Nothing is compressed: compressors differ between machines, and the hash must not."""
    about = f"{_NAME}-{graphbus_core.__version__}.dist-info"
    files = {**_modules(), f"{about}/METADATA": _METADATA.encode(), f"{about}/WHEEL": _WHEEL.encode()}
    files[f"{about}/RECORD"] = _record(files, f"{about}/RECORD")
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_STORED) as archive:
        for path, data in sorted(files.items()):
            entry = ZipInfo(path)  # of 1980
            entry.create_system, entry.external_attr = 3, 0o644 << 16  # as on POSIX, wherever it is made
            archive.writestr(entry, data)
    return Wheel(f"{_NAME}-{graphbus_core.__version__}-py3-none-any.whl", packed.getvalue())


def _modules() -> dict[str, bytes]:
    """Follow every import of the doors within the package, also those inside of functions."""
    top = Path(graphbus_core.__file__).parents[1]
    finder = ModuleFinder(path=[str(top)], excludes=[LEFT_BEHIND])
    for door in DOORS:
        finder.import_hook(door)
    names = (getattr(module, "__file__", None) for module in finder.modules.values())
    modules = {Path(name).relative_to(top).as_posix(): Path(name).read_bytes() for name in names if name}
    return {**modules, "graphbus_core/py.typed": b""}


def _record(files: Mapping[str, bytes], own: str) -> bytes:
    lines = [
        f"{path},sha256={urlsafe_b64encode(sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
        for path, data in sorted(files.items())
    ]
    return ("\n".join([*lines, f"{own},,"]) + "\n").encode()
