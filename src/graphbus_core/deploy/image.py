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
_FIND_MODULES = (  # exits with the names of the modules among its arguments that cannot be found
    "import sys; from importlib.util import find_spec; "
    'sys.exit("".join(f"no {each} in the requirements\\n" for each in sys.argv[1:] if not find_spec(each)) or None)'
)
_PACKAGE_NAME = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*(==|@|;|\\|$|[<>!~=])")
_HASH = re.compile(r"--hash[= ]sha(?:256|384|512):[0-9a-f]{64,128}\b")
_ALLOWED_OPTION = re.compile(
    r"(?:-i|--index-url|--extra-index-url|--no-index|-f|--find-links|--trusted-host|--require-hashes|--prefer-binary|--pre)"
    r"(?:[ =].*)?|--only-binary[ =]:all:"
)
"""The allowed options of pip: they only name sources, or make pip stricter. pip accepts abbreviations; these are refused."""
_UNSAFE_IN_PATHS = re.compile(r"[^\w ./@+~,=:#!%&()-]|^(?:--|<<)|^ | $|(?<= )/|/(?= )")
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
    """Return the base image if it may be used: it must be pinned by a digest, unless `may_float` is set.

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
    command = plan.command.replace("'", "")  # it becomes a comment, in which quotation marks do no harm
    for path in (*plan.sources, *plan.includes, plan.requirements, plan.artifacts, command):
        if not path.isprintable() or _UNSAFE_IN_PATHS.search(path):
            reason, advice = (
                "an ignore file or COPY would misread its name",
                "Rename it: use letters, digits, `.`, `_` and `-`.",
            )
            raise DeployError("GBE714", path=repr(path), reason=reason, advice=advice)
    return {
        "Dockerfile": render_dockerfile(plan),
        ".dockerignore": render_ignore_file(plan),
        f"{_FOLDER}/graphbus.toml": _SETTINGS,
        f"{_FOLDER}/requirements.txt": requirements,
        f"{_FOLDER}/{plan.wheel}": wheel,
    }


def render_dockerfile(plan: ImagePlan) -> str:
    """Return the text of the Dockerfile. The paths of the plan must have been checked, as `generate_image` does."""
    own_requirements = [plan.requirements] if plan.requirements else []
    options = (shlex.quote(f"--requirement={path}") for path in (f"{_FOLDER}/requirements.txt", *own_requirements))
    # Whole folders at the top of the project are copied; the ignore file decides which of their files.
    top_paths = {path if "/" not in path else f"{path.partition('/')[0]}/" for path in (*plan.sources, *plan.includes)}
    copied = (*sorted(top_paths - {f"{plan.artifacts}/"}), f"{plan.artifacts}/")
    artifact_option = [] if plan.artifacts == ".graphbus" else ["--artifacts", plan.artifacts]
    written = [STATE, *plan.writable]
    return fill_template(
        "Dockerfile",
        command=plan.command,
        base=plan.base,
        copy_requirements=tuple(_copy_line(path, path) for path in (f"{_FOLDER}/", *own_requirements)),
        requirements=" ".join(options),
        third_party=bool(plan.third_party),
        find=f"{shlex.quote(_FIND_MODULES)} {shlex.join(plan.third_party)}",
        copy_project=(
            _copy_line(f"{_FOLDER}/graphbus.toml", CONFIG),
            *(_copy_line(path, path) for path in copied),
        ),
        labels=" \\\n".join(f"{name}={_encode_json(text)}".replace("$", "\\$") for name, text in plan.labels.items()),
        folders="The folders that are" if plan.writable else "The one folder that is",
        make_folders=_encode_json(["install", "-d", "-o", f"{USER_ID}", "-g", f"{USER_ID}", "-m", "0750", *written]),
        volumes=_encode_json(written),
        is_served=plan.is_served,
        entry_point=_encode_json([*CONFINED_RUNTIME, *artifact_option]),
        arguments=_encode_json(start_arguments(is_served=plan.is_served)),
    )


def _copy_line(source: str, target: str) -> str:
    """Return a COPY instruction, in its JSON form if the source contains a space."""
    return f"COPY {_encode_json([source, target])}" if " " in source else f"COPY {source} {target}"


def _encode_json(value: object) -> str:
    return dumps(value, ensure_ascii=False)


def render_ignore_file(plan: ImagePlan) -> str:
    """Return the text of the ignore file. It excludes all files but the named ones, so that no other file gets into an image.

    Each folder of source files has its own line, because some engines skip folders that only `**` would match.
    """
    own = [f"{_FOLDER}/{name}" for name in sorted(("graphbus.toml", "requirements.txt", plan.wheel))]
    return fill_template(
        "dockerignore",
        command=plan.command,
        own=(*own, *filter(None, [plan.requirements])),
        artifacts=tuple(f"{plan.artifacts}/{name}" for name in plan.artifact_files),
        sources=tuple(dict.fromkeys(_ignore_pattern(path) for path in sorted(plan.sources))),
        includes=tuple(path.rstrip("/") for path in plan.includes),
        folders=tuple(path for path in plan.includes if path.endswith("/")),
    )


def _ignore_pattern(path: str) -> str:
    """Return `FOLDER/*.py` for a module in a folder, so that the ignore file also fits new modules; any other path unchanged."""
    folder, slash, _ = path.rpartition("/")
    return f"{folder}/*.py" if slash and path.endswith(".py") else path


# --- Requirements -----------------------------------------------------------------------------------------------------


def read_entries(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, entry) of a requirements file, with continued lines joined and comments removed.

    The number is that of the first line of the entry; empty entries are left out.
    """
    number = 1
    for entry in re.split(r"(?<!\\)\n", text.removeprefix("\ufeff") + "\n"):  # a line that ends with `\` continues
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
        name = _PACKAGE_NAME.match(line)
        reason = _describe_option_problem(line) if line.startswith("-") else _describe_package_problem(line, name)
        if reason:
            raise DeployError("GBE711", where=Place(path, number), reason=reason)
        if name and not line.startswith("-"):
            found[_normalize_name(name[1])] = line
    return found


def join_requirements(pins: Iterable[str], wheel: str, sha256: str, project_packages: Iterable[str]) -> str:
    """Return the content of the requirements file of the runtime: its wheel and its dependencies, each package once.

    Packages that the project pins are left out; pip checks that their versions suit the runtime.

    Args:
        pins: Parts of the lock of GraphBus; a package of an earlier part is not repeated from a later one.
        wheel: The file name of the wheel.
        sha256: The hash of the wheel.
        project_packages: Normalized names of the packages that the project pins.
    """
    pinned = {*project_packages}
    lines = ["# Written by `graphbus docker build`: the runtime, and what it needs. From the lock of GraphBus."]
    lines.append(f"./{_FOLDER}/{wheel} --hash=sha256:{sha256}")
    for part in pins:
        added = {name: line for name, line in read_hashed(part, "requirements.txt").items() if name not in pinned}
        pinned |= added.keys()
        lines += added.values()
    return "".join(re.sub(r"\s+--hash", " \\\n    --hash", line) + "\n" for line in lines)


def _describe_option_problem(line: str) -> str:
    """Return why an option is refused; empty if it is allowed."""
    if _ALLOWED_OPTION.fullmatch(line):
        return ""
    return f"{re.split('[ =]', line)[0]} would allow packages that are not wheels or have no hash; remove it"


def _describe_package_problem(line: str, name: re.Match[str] | None) -> str:
    """Return why an entry for a package is refused; empty if it is allowed. `name` is the match of `_PACKAGE_NAME`."""
    if name is None:
        return "a line does not begin with the name of a package"
    if not _HASH.search(line):
        return f"{name[1]} has no `--hash=sha256:`"
    if _normalize_name(name[1]) in ("graphbus", "graphbus-core", "graphbus-runtime"):
        return f"the runtime of GraphBus comes from its own wheel; leave {name[1]} out"
    if name[2] == "@" and not re.split(r"[?#\s]", line[name.end() :].strip())[0].endswith(".whl"):
        return f"{name[1]} comes from an address that is not a wheel, so that installing it would run its code"
    return ""


def _normalize_name(name: str) -> str:
    """Return the name of a package as PEP 503 normalizes it: in lower case, with single hyphens."""
    return re.sub(r"[-_.]+", "-", name).lower()
