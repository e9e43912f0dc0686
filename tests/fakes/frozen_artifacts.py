"""The artifacts that older versions wrote, copied to where a test may touch them."""

from __future__ import annotations

import shutil
from pathlib import Path

FROZEN = Path(__file__).parents[1] / "projects" / "frozen"
SAMPLES = sorted(path.relative_to(FROZEN).as_posix() for path in FROZEN.glob("format_*/*"))


def thaw(sample: str, place: Path) -> Path:
    """Copy a project with its artifacts to `place`, and give the artifact folder."""
    shutil.copytree(FROZEN / sample, place, dirs_exist_ok=True)
    (place / "built").rename(place / ".graphbus")
    return place / ".graphbus"


def contents(folder: Path) -> dict[str, bytes]:
    """Give path -> bytes of everything in a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
