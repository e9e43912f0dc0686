"""The container image of a graph: generates the Dockerfile, the ignore file and the requirements.

The Dockerfile has three stages, of which only results reach the image:

    libraries: the environment and its bytecode  ->  project: the agents and their bytecode  ->  the image

The requirements are those of the runtime, pinned by the lock of GraphBus, and those of the project; each must have hashes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from json import dumps
from typing import NamedTuple

from graphbus_core.deploy.names import CONFIG, CONFINED_RUNTIME, HEALTH_PORT, SERVE_PORT, STATE, USER_ID, check_image
from graphbus_core.deploy.render import Files, fill_template
from graphbus_core.errors import DeployError, Place

_FOLDER = "docker"
_SETTINGS = f"""\
# Settings of the container, on top of [tool.graphbus] in pyproject.toml. Mount another file over it to change them.
[runtime]
state_dir = "{STATE}"
"""
_FIND = (
    "import sys; from importlib.util import find_spec; "
    'sys.exit("".join(f"no {each} in the requirements\\n" for each in sys.argv[1:] if not find_spec(each)) or None)'
)
_NAME = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*(==|@|;|\\|$|[<>!~=])")
_HASH = re.compile(r"--hash[= ]sha(?:256|384|512):[0-9a-f]{64,128}\b")
_HARMLESS = re.compile(
    r"(?:-i|--index-url|--extra-index-url|--no-index|-f|--find-links|--trusted-host|--require-hashes|--prefer-binary|--pre)"
    r"(?:[ =].*)?|--only-binary[ =]:all:"
)
"""Options of pip that only name sources or are stricter than ours. pip accepts abbreviations, so all others are refused."""
_UNFIT = re.compile(r"[^\w ./@+~,=:#!%&()-]|^(?:--|<<)|^ | $|(?<= )/|/(?= )")
"""Characters and positions that an ignore file or COPY would interpret: options, here-documents, patterns, variables, quotes."""


class ImagePlan(NamedTuple):
    """The input of `generate_image`. Paths are relative to the project, with `/`.

    Attributes:
        command: The command that writes the same files again.
        base: The image to build on.
        wheel: The file name of the runtime's wheel.
        artifacts: The artifact folder.
        artifact_files: The names of the files in it.
        sources: Each source file that a run needs.
        includes: Further files, and folders with a `/` at their end.
        requirements: The project's own requirements file; empty: it has none.
        third_party: The modules that must be importable in the image.
        labels: OCI labels.
        is_served: The graph accepts calls and events over HTTP.
        writable: Folders in the container that agents may write to, in addition to the state folder.
    """

    command: str
    base: str
    wheel: str
    artifacts: str
    artifact_files: tuple[str, ...]
    sources: tuple[str, ...]
    includes: tuple[str, ...] = ()
    requirements: str = ""
    third_party: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    is_served: bool = False
    writable: tuple[str, ...] = ()


def start_arguments(*, is_served: bool) -> tuple[str, ...]:
    """Return the arguments of the runtime in a container: the addresses of its servers."""
    served = ("--serve", f"0.0.0.0:{SERVE_PORT}") if is_served else ()
    return ("--health", f"0.0.0.0:{HEALTH_PORT}", *served)


def check_base(image: str, *, may_float: bool) -> str:
    """Return the base image if it is pinned by a digest, or need not be (`may_float`).

    Raises:
        DeployError: GBE703 for an invalid reference, GBE712 for one without a digest.
    """
    check_image(image)
    if "@sha256:" not in image and not may_float:
        raise DeployError("GBE712", image=image)
    return image


def generate_image(plan: ImagePlan, *, requirements: str, wheel: bytes) -> Files:
    """Return path below the project -> content of all files for the image; equal input gives equal bytes.

    Args:
        plan: What the image contains.
        requirements: The content of the requirements file, from `join_requirements`.
        wheel: The content of the runtime's wheel.

    Raises:
        DeployError: GBE714 for a path that the Dockerfile or the ignore file cannot express.
    """
    for path in (*plan.sources, *plan.includes, plan.requirements, plan.artifacts, plan.command.replace("'", "")):
        if not path.isprintable() or _UNFIT.search(path):
            raise DeployError("GBE714", path=repr(path), reason="an ignore file or COPY would misread its name")
    return {
        "Dockerfile": render_dockerfile(plan),
        ".dockerignore": render_ignore_file(plan),
        f"{_FOLDER}/graphbus.toml": _SETTINGS,
        f"{_FOLDER}/requirements.txt": requirements,
        f"{_FOLDER}/{plan.wheel}": wheel,
    }


def render_dockerfile(plan: ImagePlan) -> str:
    """Return the text of the Dockerfile."""
    theirs = [plan.requirements] if plan.requirements else []
    given = (shlex.quote(f"--requirement={path}") for path in (f"{_FOLDER}/requirements.txt", *theirs))
    tops = {path if "/" not in path else f"{path.partition('/')[0]}/" for path in (*plan.sources, *plan.includes)}
    copied = (*sorted(tops - {f"{plan.artifacts}/"}), f"{plan.artifacts}/")
    elsewhere = [] if plan.artifacts == ".graphbus" else ["--artifacts", plan.artifacts]
    written = [STATE, *plan.writable]
    return fill_template(
        "Dockerfile",
        command=plan.command,
        base=plan.base,
        copy_requirements=tuple(_copy(path, path) for path in (f"{_FOLDER}/", *theirs)),
        requirements=" ".join(given),
        third_party=bool(plan.third_party),
        find=f"{shlex.quote(_FIND)} {shlex.join(plan.third_party)}",
        copy_project=(_copy(f"{_FOLDER}/graphbus.toml", CONFIG), *(_copy(path, path) for path in copied)),
        labels=" \\\n".join(f"{name}={_json(text)}".replace("$", "\\$") for name, text in plan.labels.items()),
        folders="The folders that are" if plan.writable else "The one folder that is",
        make_folders=_json(["install", "-d", "-o", f"{USER_ID}", "-g", f"{USER_ID}", "-m", "0750", *written]),
        volumes=_json(written),
        is_served=plan.is_served,
        entry_point=_json([*CONFINED_RUNTIME, *elsewhere]),
        arguments=_json(start_arguments(is_served=plan.is_served)),
    )


def _copy(source: str, target: str) -> str:
    return f"COPY {_json([source, target])}" if " " in source else f"COPY {source} {target}"


def _json(value: object) -> str:
    return dumps(value, ensure_ascii=False)


def render_ignore_file(plan: ImagePlan) -> str:
    """Return the ignore file. It excludes everything except the named files, so that new files never get into an image.

    Each folder of source files has its own line, because some engines skip folders that only `**` would match.
    """
    own = [f"{_FOLDER}/{name}" for name in sorted(("graphbus.toml", "requirements.txt", plan.wheel))]
    return fill_template(
        "dockerignore",
        command=plan.command,
        own=(*own, *filter(None, [plan.requirements])),
        artifacts=tuple(f"{plan.artifacts}/{name}" for name in plan.artifact_files),
        sources=tuple(dict.fromkeys(_pattern(path) for path in sorted(plan.sources))),
        includes=tuple(path.rstrip("/") for path in plan.includes),
        folders=tuple(path for path in plan.includes if path.endswith("/")),
    )


def _pattern(path: str) -> str:
    """Return `FOLDER/*.py` for a module, so that a new module needs no new ignore file; any other path unchanged."""
    folder, slash, _ = path.rpartition("/")
    return f"{folder}/*.py" if slash and path.endswith(".py") else path


# --- Requirements -----------------------------------------------------------------------------------------------------


def read_entries(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, entry) of a requirements file, with continued lines joined and comments removed."""
    number = 1
    for entry in re.split(r"(?<!\\)\n", text.removeprefix("\ufeff") + "\n"):
        line = " ".join(re.sub(r"(^|\s)#.*", "", each).rstrip("\\ \t\r") for each in entry.split("\n")).strip()
        if line:
            yield number, line
        number += entry.count("\n") + 1


def read_hashed(text: str, path: str) -> dict[str, str]:
    """Parse a requirements file in which every package must have hashes.

    Returns:
        Normalized name of the distribution -> the text of its entry, hashes included.

    Raises:
        DeployError: GBE711 for an entry without hashes or with an option that is not allowed, with its line.
    """
    found = {}
    for number, line in read_entries(text):
        name = _NAME.match(line)
        reason = _fault_of_option(line) if line.startswith("-") else _fault_of_package(line, name)
        if reason:
            raise DeployError("GBE711", where=Place(path, number), path=path, reason=reason)
        if name and not line.startswith("-"):
            found[_normalize_name(name[1])] = line
    return found


def join_requirements(pins: Iterable[str], wheel: str, sha256: str, theirs: Iterable[str]) -> str:
    """Return the content of the requirements file of the runtime: its wheel and its dependencies, each package once.

    Packages that the project pins are left out; pip checks that their versions suit the runtime.

    Args:
        pins: Parts of the lock of GraphBus; a package of an earlier part is not repeated from a later one.
        wheel: The file name of the wheel.
        sha256: The hash of the wheel.
        theirs: Normalized names of the packages that the project pins.
    """
    taken = {*theirs}
    lines = ["# Written by `graphbus docker build`: the runtime, and what it needs. From the lock of GraphBus."]
    lines.append(f"./{_FOLDER}/{wheel} --hash=sha256:{sha256}")
    for part in pins:
        fresh = {name: line for name, line in read_hashed(part, "requirements.txt").items() if name not in taken}
        taken |= fresh.keys()
        lines += fresh.values()
    return "".join(re.sub(r"\s+--hash", " \\\n    --hash", line) + "\n" for line in lines)


def _fault_of_option(line: str) -> str:
    """Return why an option is refused; empty if it is allowed."""
    if _HARMLESS.fullmatch(line):
        return ""
    return f"{re.split('[ =]', line)[0]} would allow packages that are not wheels or have no hash; remove it"


def _fault_of_package(line: str, name: re.Match[str] | None) -> str:
    """Return why an entry for a package is refused; empty if it is allowed. `name` is the match of `_NAME`."""
    if name is None:
        return "a line does not begin with the name of a package"
    if not _HASH.search(line):
        return f"{name[1]} has no `--hash=sha256:`"
    if _normalize_name(name[1]) in ("graphbus", "graphbus-core", "graphbus-runtime"):
        return f"the runtime of GraphBus comes from its own wheel; leave {name[1]} out"
    if name[2] == "@" and not re.split(r"[?#\s]", line[name.end() :].strip())[0].endswith(".whl"):
        return f"{name[1]} comes from an address that is not a wheel, so that installing it would run foreign code"
    return ""


def _normalize_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
