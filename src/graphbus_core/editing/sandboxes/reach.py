"""What a jailed command may read: the system's programs and libraries, and the Python that runs the tests with its packages."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
ETC = (
    *("passwd", "group", "nsswitch.conf", "hosts", "host.conf", "protocols", "services", "localtime", "timezone"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "mime.types"),
    *("ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs", "pki/ca-trust", "python3"),
)
_ASK = """\
import sys
found = list(sys.path)
for name, module in list(sys.modules.items()):
    if name.startswith("__editable__"):
        found += [str(path) for path in getattr(module, "MAPPING", {}).values()]
sys.stdout.write("\\0".join(found))
"""


class Reach(NamedTuple):
    """What is shown, from the outside in: (real path, the path at which it is seen), and links: (aim, path)."""

    reads: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...]


def reach(project: Path | None, more: tuple[str, ...]) -> Reach:
    """Give what may be read.

    Args:
        project: The real project; where its sources are on the path of the interpreter, they stay hidden all the same.
        more: Further files or folders.
    """
    links: list[tuple[str, str]] = []
    wanted: list[str] = []
    for path in (*SYSTEM, *(f"/etc/{name}" for name in ETC)):
        if os.path.islink(path):
            links.append((os.readlink(path), path))
            wanted += [os.path.realpath(path)] if path not in SYSTEM else []
        else:
            wanted.append(path)
    wanted += [*_interpreter(), *(path for path in _packages() if _is_shown(path, project)), *more]
    shown = sorted({os.path.abspath(path) for path in wanted if os.path.exists(path)})
    return Reach(tuple((os.path.realpath(path), path) for path in _roots(shown)), tuple(links))


def _roots(paths: list[str]) -> list[str]:
    """Leave out what is seen in another path anyway."""
    kept: list[str] = []
    for path in paths:
        place = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        if not any(place == root or place.startswith(f"{root}/") for root in map(os.path.realpath, kept)):
            kept.append(path)
    return kept


def _interpreter() -> list[str]:
    """Give the folders of this Python, and every link on the way from its name to its file."""
    found = [
        path for path in (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix) if not _is_wide(path)
    ]
    step = sys.executable
    for _ in range(8):
        found.append(step)
        if not os.path.islink(step):
            break
        step = os.path.normpath(os.path.join(os.path.dirname(step), os.readlink(step)))
    return found


@cache
def _packages() -> tuple[str, ...]:
    """Ask a clean interpreter where it looks for modules: no variable and no current folder has a say."""
    done = subprocess.run([sys.executable, "-I", "-c", _ASK], capture_output=True, text=True, check=False)
    return tuple(path for path in done.stdout.split("\0") if os.path.isabs(path))


def _is_shown(path: str, project: Path | None) -> bool:
    if _is_wide(path):
        return False
    return project is None or not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(project))


def _is_wide(path: str) -> bool:
    """Tell whether a folder is, or holds, somebody's home or all that there is."""
    real = Path(os.path.realpath(path))
    return Path(os.path.realpath(Path.home())).is_relative_to(real) or (len(real.parts) < 3 and real != Path("/usr"))


def sources_in(project: Path) -> tuple[str, ...]:
    """Give the folders of a project that are installed from their sources, relative to it: its copy takes their place."""
    root = Path(os.path.realpath(project))
    real = (Path(os.path.realpath(path)) for path in _packages() if not Path(path).is_relative_to(sys.prefix))
    return tuple(str(path.relative_to(root)) for path in real if path.is_relative_to(root))
