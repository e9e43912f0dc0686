"""The wheel that goes into an image: Runtime Mode alone, made of the package as it is installed, the same bytes every time.

What is not in it cannot be imported in a container: no build wing, no command line, and nothing that asks a model.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import NamedTuple
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import graphbus_core

NAME = "graphbus_runtime"
FLOORS = (
    "__init__",
    "bus",
    "clock",
    "collector",
    "confinement",
    "decorators",
    "errors",
    "hosting",
    "isolation",
    "log",
    "middleware",
    "model",
    "node",
    "pipeline",
    "runtime",
    "settings",
    "store",
    "tables",
)
"""The packages and modules of `graphbus_core` that Runtime Mode consists of."""
REQUIRES = ("msgspec>=0.20",)
_MODE = 0o644 << 16
_FIRST_TIME = (1980, 1, 1, 0, 0, 0)


class Wheel(NamedTuple):
    """A wheel, ready to be written."""

    name: str
    data: bytes

    @property
    def sha256(self) -> str:
        """As files of requirements write it."""
        return sha256(self.data).hexdigest()


def make_wheel() -> Wheel:
    """Pack the runtime. Nothing is compressed: compressors differ between machines, and the hash must not."""
    version = graphbus_core.__version__
    package = Path(graphbus_core.__file__).parent
    files = {f"graphbus_core/{path}": data for path, data in _modules(package)}
    files["graphbus_core/py.typed"] = b""
    about = f"{NAME}-{version}.dist-info"
    files |= {f"{about}/{name}": text.encode() for name, text in _about(version).items()}
    files[f"{about}/RECORD"] = _record(files, f"{about}/RECORD")
    return Wheel(f"{NAME}-{version}-py3-none-any.whl", _zip(files))


def _modules(package: Path) -> Iterator[tuple[str, bytes]]:
    for floor in FLOORS:
        place = package / floor
        found = sorted(place.rglob("*.py")) if place.is_dir() else [package / f"{floor}.py"]
        yield from ((path.relative_to(package).as_posix(), path.read_bytes()) for path in found)


def _about(version: str) -> dict[str, str]:
    requires = "".join(f"Requires-Dist: {each}\n" for each in REQUIRES)
    return {
        "METADATA": f"Metadata-Version: 2.4\nName: {NAME.replace('_', '-')}\nVersion: {version}\n"
        f"Summary: Runtime Mode of GraphBus, without what builds.\nLicense-Expression: MIT\n"
        f"Requires-Python: >=3.11\n{requires}",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: graphbus\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }


def _record(files: Mapping[str, bytes], own: str) -> bytes:
    lines = [
        f"{path},sha256={urlsafe_b64encode(sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
        for path, data in sorted(files.items())
    ]
    return ("\n".join([*lines, f"{own},,"]) + "\n").encode()


def _zip(files: Mapping[str, bytes]) -> bytes:
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_STORED) as archive:
        for path, data in sorted(files.items()):
            entry = ZipInfo(path, _FIRST_TIME)
            entry.create_system, entry.external_attr = 3, _MODE  # as on POSIX, wherever it is made
            archive.writestr(entry, data)
    return packed.getvalue()
