"""The official parser of AsyncAPI, run by node: `.ci/run` installs what tests/asyncapi/package-lock.json names, by its hashes.

By hand: npm ci --prefix tests/asyncapi --ignore-scripts
A new version: in tests/asyncapi, `npm install --package-lock-only --save-exact @asyncapi/parser@VERSION`; then take every
`funding` out of the lock, which names no address. Scripts of packages are never run: one of them reports who installs it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

_FOLDER = Path(__file__).resolve().parents[1] / "asyncapi"
_IS_THERE = shutil.which("node") is not None and (_FOLDER / "node_modules" / "@asyncapi" / "parser").is_dir()

needs_parser = pytest.mark.skipif(
    not _IS_THERE and not os.environ.get("CI"), reason="the parser of AsyncAPI is not installed"
)

_NEWER = "asyncapi-latest-version"
"""3.1 exists; what we promise is 3.0."""


def parse(*files: Path) -> list[dict[str, Any]]:
    """Give what the parser says of each file: `isRead`, `operations` and `diagnostics`."""
    finished = subprocess.run(
        ["node", str(_FOLDER / "parse.cjs"), *map(str, files)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    found: list[dict[str, Any]] = json.loads(finished.stdout)
    for each in found:
        each["diagnostics"] = [said for said in each["diagnostics"] if said["code"] != _NEWER]
    return found
