"""Write what an image installs, from our own lock: `deploy/lock/*.txt`; `--check` only compares.

Only what the runtime needs is taken over: the lock of an extra also holds what the command line needs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCKS = ROOT / "requirements"
PINS = ROOT / "src" / "graphbus_core" / "deploy" / "lock"
NEEDED = {
    "runtime": ("msgspec",),
    "serve": ("starlette", "uvicorn"),
    "otel": ("opentelemetry-api",),
    "nats": ("nats-py",),
}
"""Lock -> what the runtime imports of it, itself and by others."""
OLD_PYTHON = re.compile(r"python_version < .3\.(?:[89]|1[01])\b")


def with_dependencies(names: tuple[str, ...]) -> set[str]:
    """Give these distributions and all that they need without extras, on any Python."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = normal(waiting.pop())
        if name in found:
            continue
        found.add(name)
        needed = (each for each in distribution(name).requires or [] if "extra ==" not in each)
        waiting += (re.split(r"[^\w.-]", each, maxsplit=1)[0] for each in needed if not OLD_PYTHON.search(each))
    return found


def entries(text: str) -> Iterator[tuple[str, str]]:
    """Give name -> lines of each entry of a lock."""
    for entry in re.findall(r"^[A-Za-z0-9][^\n]*\n(?:[ \t]+[^\n]*\n)*", text, re.MULTILINE):
        yield normal(entry.partition("==")[0]), entry


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    """Give the content of each file."""
    written = {}
    for lock, names in NEEDED.items():
        wanted = with_dependencies(names)
        found = {name: text for name, text in entries((LOCKS / f"{lock}.txt").read_text("utf-8")) if name in wanted}
        missing = [name for name in names if name not in found]
        if missing:
            raise SystemExit(f"{lock}.txt does not pin {', '.join(missing)}")
        written[f"{lock}.txt"] = "".join(found.values())
    return written


def main() -> int:
    stale = [name for name, text in pins().items() if not is_same(PINS / name, text)]
    if "--check" in sys.argv:
        if stale:
            print(f"Not what scripts/image_pins.py makes: {', '.join(stale)}", file=sys.stderr)
        return 1 if stale else 0
    PINS.mkdir(exist_ok=True)
    for name, text in pins().items():
        (PINS / name).write_text(text, encoding="utf-8")
    return 0


def is_same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text("utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
