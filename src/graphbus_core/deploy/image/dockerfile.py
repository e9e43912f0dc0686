"""The Dockerfile: three stages, of which only results reach the image.

libraries: the environment, and bytecode of all libraries  ->  project: the agents, and their bytecode  ->  the image
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from json import dumps

from graphbus_core.deploy.facts import CONFIG, CONFINED_RUNTIME, HEALTH_PORT, HOME, SERVE_PORT, STATE, USER_ID
from graphbus_core.deploy.image.plan import ImagePlan, start_arguments

_ENVIRONMENT = "/venv"
_PYTHON = f"{_ENVIRONMENT}/bin/python"
_BYTECODE = "/bytecode"
_UNUSED = "ensurepip|idlelib|lib2to3|pydoc_data|site-packages|test|tests|tkinter|turtledemo|unittest"
"""Folders of the standard library that a graph does not import, or only in its tests."""
_AND = " && \\\n    "
_FIND = (
    "import sys; from importlib.util import find_spec; "
    'sys.exit("".join(f"no {each} in the requirements\\n" for each in sys.argv[1:] if not find_spec(each)) or None)'
)
_RESERVED = frozenset("$ ")
"""What a path needs the exact form for."""


def render(plan: ImagePlan) -> str:
    """Give the text; the same plan gives the same bytes."""
    heading = f"# Written by `{plan.command}`. Write it again rather than edit it."
    blocks = [heading, *_libraries(plan), *_project(plan), *_image(plan)]
    return "\n\n".join(blocks) + "\n"


def _libraries(plan: ImagePlan) -> Iterator[str]:
    variables = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": _BYTECODE, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    files = [f"{plan.folder}/requirements.txt", *([plan.requirements] if plan.requirements else [])]
    yield _lines(
        f"FROM {plan.base} AS libraries",
        _env(**variables),
        "WORKDIR /build",
        _copy(f"{plan.folder}/", f"{plan.folder}/"),
        *(_copy(path, path) for path in files[1:]),
    )
    given = " ".join(shlex.quote(f"--requirement={path}") for path in files)
    install = [
        f"python -m venv --without-pip {_ENVIRONMENT}",
        f"python -m pip --python {_PYTHON} install --no-cache-dir --no-compile --root-user-action=ignore \\\n"
        f"        --only-binary=:all: --require-hashes {given}",
    ]
    if plan.third_party:
        install.append(f"{_PYTHON} -c {shlex.quote(_FIND)} {shlex.join(plan.third_party)}")
    yield _lines(
        "# Only what is listed, with its hash, and no code of others is run to install it. There is no pip in the environment.",
        "# Another index: --build-arg PIP_INDEX_URL=...; the hashes hold for it as well.",
        "ARG PIP_INDEX_URL",
        f"RUN {_AND.join(install)}",
    )
    mode = "--invalidation-mode=unchecked-hash"
    yield _lines(
        "# The base has no bytecode, and a container cannot write any: without it each start compiles for half a second.",
        "# It is not compared with its sources, as nothing here changes any more. Packages may bring what is no Python.",
        f"RUN python -m compileall -q {mode} -x '/({_UNUSED})/' \\",
        '        "$(python -c \'import sysconfig; print(sysconfig.get_path("stdlib"))\')" && \\',
        f"    {{ python -m compileall -q {mode} {_ENVIRONMENT}/lib || true; }}",
    )


def _project(plan: ImagePlan) -> Iterator[str]:
    yield _lines(
        "FROM libraries AS project",
        f"WORKDIR {HOME}",
        _copy(f"{plan.folder}/graphbus.toml", CONFIG),
        *(_copy(path, path) for path in _tops(plan)),
        _copy(f"{plan.artifacts}/", f"{plan.artifacts}/"),
    )
    yield _lines(
        "# Readable for everybody and writable for nobody, whatever the checkout had. This bytecode is compared with its",
        "# sources: somebody may mount another file there.",
        f"RUN chmod -R u=rwX,go=rX {HOME} {CONFIG.rpartition('/')[0]} && \\",
        f"    python -m compileall -q --invalidation-mode=checked-hash {HOME} && \\",
        f"    mkdir -p {_BYTECODE}{HOME}",
    )


def _image(plan: ImagePlan) -> Iterator[str]:
    yield _lines(f"FROM {plan.base}", _label(plan))
    yield _env(
        PATH=f"{_ENVIRONMENT}/bin:$PATH",
        PYTHONDONTWRITEBYTECODE="1",
        PYTHONPYCACHEPREFIX=_BYTECODE,
        PYTHONUNBUFFERED="1",
        GRAPHBUS_CONFIG=CONFIG,
    )
    written = [STATE, *plan.writable]
    yield _lines(
        "# The one folder that is written to." if not plan.writable else "# The folders that are written to.",
        _exec("RUN", ["install", "-d", "-o", f"{USER_ID}", "-g", f"{USER_ID}", "-m", "0750", *written]),
    )
    yield _lines(
        *(f"COPY --from=libraries {path} {path}" for path in (_ENVIRONMENT, _BYTECODE)),
        *(f"COPY --from=project {path} {path}" for path in (f"{_BYTECODE}{HOME}", CONFIG.rpartition("/")[0], HOME)),
    )
    yield _lines(
        f"WORKDIR {HOME}",
        f"USER {USER_ID}:{USER_ID}",
        _exec("VOLUME", written),
        f"EXPOSE {HEALTH_PORT}{f' {SERVE_PORT}' if plan.is_served else ''}",
        "STOPSIGNAL SIGTERM",
    )
    health = ["python", "-m", "graphbus_core.hosting.serving.health", str(HEALTH_PORT)]
    yield _lines(
        "HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 \\",
        f"    CMD {dumps(health)}",
    )
    elsewhere = [] if plan.artifacts == ".graphbus" else ["--artifacts", plan.artifacts]
    yield _lines(
        "# Bound to [tool.graphbus.powers] by Landlock and seccomp.",
        _exec("ENTRYPOINT", [*CONFINED_RUNTIME, *elsewhere]),
        _exec("CMD", start_arguments(is_served=plan.is_served)),
    )


def copied(plan: ImagePlan) -> list[str]:
    """Give what is copied out of the project, as it is written after COPY."""
    return [f"{plan.folder}/", *filter(None, [plan.requirements]), f"{plan.artifacts}/", *_tops(plan)]


def _tops(plan: ImagePlan) -> list[str]:
    """What is copied: the top folder of each file, with a `/` at its end; the ignore file says what of it there is."""
    found = (path if "/" not in path else f"{path.partition('/')[0]}/" for path in (*plan.sources, *plan.includes))
    return sorted(set(found) - {f"{plan.artifacts}/"})


def _label(plan: ImagePlan) -> str:
    first, *rest = (
        f"{name}={dumps(text, ensure_ascii=False).replace('$', chr(92) + '$')}" for name, text in plan.labels.items()
    )
    return " \\\n      ".join([f"LABEL {first}", *rest])


def _env(**variables: str) -> str:
    return "ENV " + " \\\n    ".join(f"{name}={value}" for name, value in variables.items())


def _copy(source: str, target: str) -> str:
    if _RESERVED.isdisjoint(source + target):
        return f"COPY {source} {target}"
    return _exec("COPY", [path.replace("$", "\\$") for path in (source, target)])


def _exec(instruction: str, words: Sequence[str]) -> str:
    return f"{instruction} {dumps(list(words), ensure_ascii=False)}"


def _lines(*lines: str) -> str:
    return "\n".join(lines)
