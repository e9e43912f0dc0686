"""The image of a graph: a plan of what goes into it becomes a Dockerfile and the list of what the engine may see.

The Dockerfile has three stages, of which only results reach the image:

    libraries: the environment and its bytecode  ->  project: the agents and their bytecode  ->  the image
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from json import dumps
from string import Template
from typing import NamedTuple

from graphbus_core.deploy.facts import (
    CONFIG,
    CONFIG_FOLDER,
    CONFINED_RUNTIME,
    HEALTH_PORT,
    HOME,
    SERVE_PORT,
    STATE,
    USER_ID,
    Files,
)

_SETTINGS = f"""\
# Settings of the container, on top of [tool.graphbus] in pyproject.toml. Mount another file over it to change them.
[runtime]
state_dir = "{STATE}"
"""
_FIND = (
    "import sys; from importlib.util import find_spec; "
    'sys.exit("".join(f"no {each} in the requirements\\n" for each in sys.argv[1:] if not find_spec(each)) or None)'
)
_DOCKERFILE = Template(
    r"""# Written by `$command`. Write it again rather than edit it.

FROM $base AS libraries
ENV PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPYCACHEPREFIX=/bytecode \
    PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
$copy_requirements

# Only what is listed, with its hash, and no code of others is run to install it. There is no pip in the environment.
# Another index: --build-arg PIP_INDEX_URL=...; the hashes hold for it as well.
ARG PIP_INDEX_URL
RUN python -m venv --without-pip /venv && \
    python -m pip --python /venv/bin/python install --no-cache-dir --no-compile --root-user-action=ignore \
        --only-binary=:all: --require-hashes $requirements$find

# The base has no bytecode, and a container cannot write any: without it each start compiles for half a second.
# It is not compared with its sources, as nothing here changes any more. Packages may bring what is no Python.
RUN python -m compileall -q --invalidation-mode=unchecked-hash -x '/($unused)/' \
        "$$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" && \
    { python -m compileall -q --invalidation-mode=unchecked-hash /venv/lib || true; }

FROM libraries AS project
WORKDIR $home
$copy_project

# Readable for everybody and writable for nobody, whatever the checkout had. This bytecode is compared with its
# sources: somebody may mount another file there.
RUN chmod -R u=rwX,go=rX $home $config_folder && \
    python -m compileall -q --invalidation-mode=checked-hash $home && \
    mkdir -p /bytecode$home

FROM $base
LABEL $labels

ENV PATH=/venv/bin:$$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPYCACHEPREFIX=/bytecode \
    PYTHONUNBUFFERED=1 \
    GRAPHBUS_CONFIG=$config

# $folders written to.
RUN $make_folders

COPY --from=libraries /venv /venv
COPY --from=libraries /bytecode /bytecode
COPY --from=project /bytecode$home /bytecode$home
COPY --from=project $config_folder $config_folder
COPY --from=project $home $home

WORKDIR $home
USER $user:$user
VOLUME $volumes
EXPOSE $ports
STOPSIGNAL SIGTERM

HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-m", "graphbus_core.hosting.serving.health", "$health_port"]

# Bound to [tool.graphbus.powers] by Landlock and seccomp.
ENTRYPOINT $entry_point
CMD $arguments
"""
)
_UNUSED = "ensurepip|idlelib|lib2to3|pydoc_data|site-packages|test|tests|tkinter|turtledemo|unittest"
"""Folders of the standard library that a graph does not import, or only in its tests."""


class ImagePlan(NamedTuple):
    """Everything that the files follow from. Paths are relative to the project, with `/`.

    Attributes:
        command: The command that writes the same files again.
        base: The image to build on.
        folder: Where our own files are: `docker`.
        wheel: The name of the runtime's wheel, in that folder.
        artifacts: The artifact folder.
        artifact_files: The files in it.
        sources: Each source file that a run needs.
        includes: Further files, and folders with a `/` at their end.
        requirements: The project's own requirements; empty: it has none.
        third_party: The modules that must be importable.
        labels: OCI labels.
        is_served: Calls and events are taken over HTTP.
        writable: Folders that agents may write to, beside the state.
    """

    command: str
    base: str
    folder: str
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

    @property
    def dockerfile(self) -> str:
        """The path of the Dockerfile, beside the folder with our own files."""
        return f"{self.folder.rpartition('/')[0]}/Dockerfile".removeprefix("/")

    @property
    def copied(self) -> tuple[str, ...]:
        """What of the project is copied: the top folder of each file, with a `/` at its end, and the artifacts."""
        found = (path if "/" not in path else f"{path.partition('/')[0]}/" for path in (*self.sources, *self.includes))
        return (*sorted({*found} - {f"{self.artifacts}/"}), f"{self.artifacts}/")


def start_arguments(*, is_served: bool) -> tuple[str, ...]:
    """Return the arguments that the runtime in an image is started with."""
    served = ("--serve", f"0.0.0.0:{SERVE_PORT}") if is_served else ()
    return ("--health", f"0.0.0.0:{HEALTH_PORT}", *served)


def generate(plan: ImagePlan, *, requirements: str, wheel: bytes) -> Files:
    """Return the files, by path below the project; the same plan gives the same bytes."""
    is_at_top = plan.dockerfile == "Dockerfile"
    return {
        plan.dockerfile: render_dockerfile(plan),
        ".dockerignore" if is_at_top else f"{plan.dockerfile}.dockerignore": render_ignore_file(plan),
        f"{plan.folder}/graphbus.toml": _SETTINGS,
        f"{plan.folder}/requirements.txt": requirements,
        f"{plan.folder}/{plan.wheel}": wheel,
    }


def render_dockerfile(plan: ImagePlan) -> str:
    """Return the text of the Dockerfile."""
    theirs = [plan.requirements] if plan.requirements else []
    given = (shlex.quote(f"--requirement={path}") for path in (f"{plan.folder}/requirements.txt", *theirs))
    find = f" && \\\n    /venv/bin/python -c {shlex.quote(_FIND)} {shlex.join(plan.third_party)}"
    elsewhere = [] if plan.artifacts == ".graphbus" else ["--artifacts", plan.artifacts]
    written = [STATE, *plan.writable]
    make = ["install", "-d", "-o", f"{USER_ID}", "-g", f"{USER_ID}", "-m", "0750", *written]
    return _DOCKERFILE.substitute(
        command=plan.command,
        base=plan.base,
        copy_requirements="\n".join(_copy(path, path) for path in (f"{plan.folder}/", *theirs)),
        requirements=" ".join(given),
        find=find if plan.third_party else "",
        unused=_UNUSED,
        home=HOME,
        config=CONFIG,
        config_folder=CONFIG_FOLDER,
        copy_project="\n".join(
            [_copy(f"{plan.folder}/graphbus.toml", CONFIG), *(_copy(path, path) for path in plan.copied)]
        ),
        labels=" \\\n      ".join(f"{name}={_label(text)}" for name, text in plan.labels.items()),
        folders="The folders that are" if plan.writable else "The one folder that is",
        make_folders=_json(make),
        user=USER_ID,
        volumes=_json(written),
        ports=f"{HEALTH_PORT} {SERVE_PORT}" if plan.is_served else HEALTH_PORT,
        health_port=HEALTH_PORT,
        entry_point=_json([*CONFINED_RUNTIME, *elsewhere]),
        arguments=_json(start_arguments(is_served=plan.is_served)),
    )


def _copy(source: str, target: str) -> str:
    """Return an instruction; a path with `$` or a space needs the form in JSON."""
    if re.search(r"[$ ]", source + target):
        return f"COPY {_json([path.replace('$', chr(92) + '$') for path in (source, target)])}"
    return f"COPY {source} {target}"


def _label(text: str) -> str:
    return dumps(text, ensure_ascii=False).replace("$", "\\$")


def _json(words: Sequence[str]) -> str:
    return dumps(words, ensure_ascii=False)


def render_ignore_file(plan: ImagePlan) -> str:
    """Return the ignore file: everything stays out of the build but what is named, and so does what nobody thought of.

    Source files are let through folder by folder, as some engines do not look below a folder that only `**` would reach.
    """
    return "\n".join(_ignore_lines(plan)) + "\n"


def _ignore_lines(plan: ImagePlan) -> Iterator[str]:
    yield f"# Written by `{plan.command}`. Nothing goes into the image but what is named here."
    yield from ("*", "", "# the runtime, and what it needs")
    own = [f"{plan.folder}/{name}" for name in sorted(("graphbus.toml", "requirements.txt", plan.wheel))]
    yield from (f"!{_literal(path)}" for path in (*own, *filter(None, [plan.requirements])))
    yield from ("", "# the artifacts")
    yield from (f"!{_literal(f'{plan.artifacts}/{name}')}" for name in plan.artifact_files)
    yield from ("", "# the agents, and what they import")
    yield from dict.fromkeys(f"!{_pattern(path)}" for path in sorted(plan.sources))
    if plan.includes:
        yield from ("", "# what was asked for with --include")
        yield from (f"!{_literal(path.rstrip('/'))}" for path in plan.includes)
        folders = [_literal(path) for path in plan.includes if path.endswith("/")]
        yield from (f"{folder}**/{name}" for name in (".*", "__pycache__") for folder in folders)


def _pattern(path: str) -> str:
    """All modules of a folder, so that a new one needs no new ignore file; files at the top of the project one by one."""
    folder, slash, _ = path.rpartition("/")
    return f"{_literal(folder)}/*.py" if slash and path.endswith(".py") else _literal(path)


def _literal(path: str) -> str:
    return re.sub(r"([\\*?\[\]!])", r"\\\1", path)
