"""The rooms where versions of Python matter, tried on the newest other one that this machine has: `scripts/other_python.py`.

It has an environment of its own in `.cache/`, with the pins of requirements/dev.txt that these rooms need. Where there is no
other Python that GraphBus supports, it says so and is content: `make test` has proved everything on the one that is there.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "dev.txt"
ROOMS = (
    "tests/unit/bus",
    "tests/unit/hosting",
    "tests/unit/compiler",
    "tests/unit/instruments",
    "tests/unit/store",
    "tests/unit/runtime",
    "tests/unit/schema/test_type_aliases.py",
    "tests/unit/rules/test_fixes_beside_type_parameters.py",
    "tests/cli/test_cli_build.py",
    "tests/cli/test_run_command.py",
    "tests/cli/test_trace_and_profile_commands.py",
)
NEEDED = (
    *("msgspec", "click", "rich", "networkx", "markdown-it-py", "mdurl", "pygments"),
    *("pytest", "pytest-xdist", "pytest-timeout", "pytest-socket", "pytest-randomly", "hypothesis"),
    *("iniconfig", "pluggy", "packaging", "execnet", "sortedcontainers", "attrs"),
    *("starlette", "uvicorn", "h11", "anyio", "idna", "sniffio", "typing-extensions", "watchfiles"),
    *("hatchling", "editables", "pathspec", "trove-classifiers", "tomli", "tomlkit"),
    *("pydantic", "pydantic-core", "annotated-types", "typing-inspection"),
    *("opentelemetry-api", "opentelemetry-sdk", "opentelemetry-semantic-conventions"),
    *("pyyaml", "jsonschema", "jsonschema-specifications", "referencing", "rpds-py"),
)
"""By hand, as the lock does not say what needs what; pip refuses a list in which something is missing."""


class Python(NamedTuple):
    """An interpreter: its version, and where it is."""

    version: tuple[int, int]
    path: str


def supported() -> list[tuple[int, int]]:
    """The versions that pyproject.toml names, oldest first."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    found = (re.fullmatch(r"Programming Language :: Python :: (\d)\.(\d+)", line) for line in classifiers)
    return sorted((int(match[1]), int(match[2])) for match in found if match)


def candidates(versions: Iterable[tuple[int, int]]) -> Iterator[str]:
    """Where interpreters may be: on the path by their names, and where pyenv puts them."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for major, minor in versions:
        for folder in os.environ.get("PATH", "").split(os.pathsep):
            yield os.path.join(folder, f"python{major}.{minor}")
        yield from (str(path) for path in sorted(pyenv.glob(f"{major}.{minor}*/bin/python3")))


def newest_other(versions: Iterable[tuple[int, int]], own: tuple[int, int]) -> Python | None:
    """Give the newest of these versions, our own left out, that really runs here."""
    others = sorted((version for version in versions if version != own), reverse=True)
    for path in candidates(others):
        version = version_of(path)
        if version in others:
            return Python(version, path)
    return None


def version_of(path: str) -> tuple[int, int] | None:
    """Ask an interpreter what it is; None for what does not run, such as the place holders of pyenv."""
    if not os.access(path, os.X_OK):
        return None
    asked = [path, "-c", "import sys, venv, sqlite3; print(*sys.version_info[:2])"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
    return (int(said[0]), int(said[1])) if len(said) == 2 else None


def pins(lock: str, names: Iterable[str]) -> str:
    """Give the entries of a lock, with their hashes, for these names."""
    entries = re.split(r"(?m)^(?=[a-z0-9])", lock)
    wanted = set(names)
    return "".join(entry for entry in entries if entry.partition("==")[0] in wanted)


def environment_of(python: Python) -> Path:
    """Make the environment, or take the one that was made of the same pins; give its interpreter."""
    wanted = pins(LOCK.read_text(encoding="utf-8"), NEEDED)
    digest = hashlib.sha256(f"{python.path}\n{wanted}".encode()).hexdigest()
    folder = ROOT / ".cache" / "python{}.{}".format(*python.version)
    inside, ready, listed = folder / "bin" / "python", folder / ".ready", folder / "pins.txt"
    if ready.exists() and ready.read_text() == digest:
        return inside
    run([python.path, "-m", "venv", "--clear", str(folder)])
    listed.write_text(wanted, encoding="utf-8")
    pip = [str(inside), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--no-deps", "--require-hashes", "-r", str(listed)])
    run([*pip, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)])
    ready.write_text(digest)
    return inside


def run(command: list[str]) -> None:
    """Run it with its output on our own; whatever fails ends the program with its status."""
    dropped = ("COVERAGE_", "COV_", "PYTEST_", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONSTARTUP")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    status = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, env=clean, check=False).returncode
    if status:
        sys.exit(status)


def main() -> None:
    """Look for it, and try the rooms on it."""
    own = sys.version_info[:2]
    python = newest_other(supported(), own)
    if python is None:
        print("=== other Python: none here besides {}.{}; nothing is tried on another".format(*own))
        return
    print("=== other Python: {}.{}".format(*python.version), flush=True)
    tests = ["-m", "pytest", "-n", "2", "--dist", "worksteal", "--hypothesis-profile=ci", "-q", "-m", "not slow"]
    run([str(environment_of(python)), *tests, "-p", "no:cacheprovider", *ROOMS])


if __name__ == "__main__":
    main()
