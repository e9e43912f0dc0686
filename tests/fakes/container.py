"""Carries out a Dockerfile without an engine: each stage is a folder, each RUN happens in it by bubblewrap.

The base is this machine: its programs and its Python are mounted into every stage, read-only. Wheels come from a folder.
What only an engine could do is left out: layers, other users while it builds (`install -d -o` becomes `mkdir`), the registry.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.patience import PATIENCE_S

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
_OWN = ("app", "build", "bytecode", "etc", "var", "venv")
"""The folders at the top that belong to an image; all others are those of the base."""


class Instruction(NamedTuple):
    """`RUN`, and the rest of its line."""

    word: str
    rest: str

    @property
    def words(self) -> list[str]:
        """Of the exact form, or as a shell would take them apart."""
        return list(json.loads(self.rest)) if self.rest.startswith("[") else shlex.split(self.rest)


class Stage:
    """What a stage has come to: its files and its settings."""

    def __init__(self, folder: Path, parent: Stage | None = None) -> None:
        self.folder = folder
        path = f"{sys.base_prefix}/bin:/usr/bin:/bin:/base/bin"
        self.env: dict[str, str] = dict(parent.env) if parent else {"PATH": path}
        self.workdir = parent.workdir if parent else "/"
        self.said: dict[str, Instruction] = {}
        if parent:
            shutil.copytree(parent.folder, folder, symlinks=True)
        for name in _OWN:
            (folder / name).mkdir(parents=True, exist_ok=True)

    def mounts(self, how: str) -> list[str]:
        """Its folders, and below them the base."""
        own = [word for name in _OWN for word in (how, str(self.folder / name), f"/{name}")]
        return [*own, *_base()]

    def inside(self, path: str) -> Path:
        """Where a path of the container lies here."""
        return self.folder / os.path.normpath(os.path.join(self.workdir, path)).lstrip("/")


def read(text: str) -> list[Instruction]:
    """Give the instructions; comments are none, a backslash at the end of a line continues it."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    logical = (line.strip() for line in re.sub(r"\\\n", " ", lines).splitlines())
    return [Instruction(*line.partition(" ")[::2]) for line in logical if line]


def context(root: Path, ignore_file: str, into: Path) -> Path:
    """Copy what the ignore file lets through, as an engine does before it builds."""
    patterns = [line for line in ignore_file.splitlines() if line and not line.startswith("#")]
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_file() and not _is_ignored(name, patterns):
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, into / name)
    return into


def _is_ignored(name: str, patterns: list[str]) -> bool:
    """The last pattern that speaks of the file or of a folder above it decides."""
    parts = name.split("/")
    above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    is_ignored = False
    for pattern in patterns:
        regex = _regex(pattern.removeprefix("!"))
        if any(regex.fullmatch(each) for each in above):
            is_ignored = not pattern.startswith("!")
    return is_ignored


def _regex(pattern: str) -> re.Pattern[str]:
    signs = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.findall(r"\\.|\*\*/|\*\*|\*|\?|.", pattern)
    return re.compile("".join(signs.get(part) or re.escape(part.removeprefix("\\")) for part in parts))


class Builder:
    """Builds the image of a context.

    Args:
        wheels: Where pip finds what it installs.
    """

    def __init__(self, into: Path, sources: Path, wheels: Path, site: Path) -> None:
        self._into = into
        self._sources = sources
        self._wheels = wheels
        self._site = site
        self._stages: dict[str, Stage] = {}

    def build(self, dockerfile: str) -> Stage:
        """Carry out every instruction, and give the last stage."""
        stage = Stage(self._into / "scratch")
        for number, instruction in enumerate(read(dockerfile)):
            if instruction.word == "FROM":
                image, _, name = instruction.rest.partition(" AS ")
                stage = Stage(self._into / str(number), self._stages.get(image))
                self._stages[name or str(number)] = stage
            else:
                self._do(stage, instruction)
        return stage

    def _do(self, stage: Stage, instruction: Instruction) -> None:
        if instruction.word == "ENV":
            for word in instruction.words:
                name, _, value = word.partition("=")
                stage.env[name] = value.replace("$PATH", stage.env["PATH"])
        elif instruction.word == "WORKDIR":
            stage.workdir = instruction.rest
            stage.inside(".").mkdir(parents=True, exist_ok=True)
        elif instruction.word == "COPY":
            self._copy(stage, instruction.words)
        elif instruction.word == "RUN" and instruction.words[:2] == ["install", "-d"]:
            stage.inside(instruction.words[-1]).mkdir(parents=True)
        elif instruction.word == "RUN":
            self._run(stage, instruction)
        else:
            stage.said[instruction.word] = instruction

    def _copy(self, stage: Stage, words: list[str]) -> None:
        *options, source, target = words
        origin = self._stages[options[0].removeprefix("--from=")].inside(source) if options else self._sources / source
        place = stage.inside(target)
        place.parent.mkdir(parents=True, exist_ok=True)
        if origin.is_dir():
            shutil.copytree(origin, place, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(origin, place)

    def _run(self, stage: Stage, instruction: Instruction) -> None:
        script = shlex.join(instruction.words) if instruction.rest.startswith("[") else instruction.rest
        offline = {"HOME": "/tmp", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/base/wheels", "PYTHONPATH": "/base/site"}
        mounts = [*stage.mounts("--bind"), "--ro-bind", str(self._wheels), "/base/wheels"]
        mounts += ["--ro-bind", str(self._site), "/base/site", "--tmpfs", "/tmp"]
        command = jail(mounts, {**stage.env, **offline}, stage.workdir, ["/bin/sh", "-c", script])
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"


def start(
    stage: Stage, state: Path, command: list[str], *, user: int, mounted: Mapping[str, Path] | None = None
) -> list[str]:
    """What runs a command in the image: read-only but for its state, as a user without rights, on a network of its own.

    Args:
        mounted: Further folders, by their place in the container; nobody writes to them.
    """
    volume = json.loads(stage.said["VOLUME"].rest)[0]
    mounts = [*stage.mounts("--ro-bind"), "--tmpfs", "/tmp", "--bind", str(state), volume]
    mounts += [word for place, folder in (mounted or {}).items() for word in ("--ro-bind", str(folder), place)]
    apart = ("--unshare-net", "--uid", str(user), "--gid", str(user))
    return jail(mounts, stage.env, stage.workdir, command, *apart)


def jail(mounts: list[str], env: Mapping[str, str], workdir: str, command: list[str], *more: str) -> list[str]:
    """The command line of bubblewrap."""
    variables = [word for name, value in env.items() for word in ("--setenv", name, value)]
    apart = ["--unshare-user", "--unshare-pid", "--die-with-parent", "--clearenv", *more]
    system = ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/"]
    return ["bwrap", *apart, *mounts, *system, *variables, "--chdir", workdir, *command]


def _base() -> list[str]:
    """The base image: this machine's programs and its Python, which is `python` there."""
    binds = [*_present(), "--symlink", f"{sys.base_prefix}/bin/{_python()}", "/base/bin/python"]
    return binds if sys.base_prefix == "/usr" else ["--ro-bind", sys.base_prefix, sys.base_prefix, *binds]


def _python() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def _present() -> Iterator[str]:
    for place in _SYSTEM:
        if os.path.islink(place):
            yield from ("--symlink", os.readlink(place), place)
        elif os.path.exists(place):
            yield from ("--ro-bind", place, place)
