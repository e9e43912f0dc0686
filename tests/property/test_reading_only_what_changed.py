"""A project in which a file changes is read and checked in part; it must come to what reading and checking all of it comes to."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphbus_core.compiler.project import Project
from tests.reading import HEAD, read_files

pytestmark = pytest.mark.slow

TOPICS = ["/Order/Placed", "/Order/Plced", "/Order/*", "/Stock/Moved", "/Stock/**"]
KEYS = ["sku", "skuu", "quantity", "price"]
NAMES = ["Shop", "Stock", "Mail", "Till", "Audit"]
SHARED = HEAD + (
    "\n\nclass Shared(GraphBusNode):\n    abstract = True\n\n"
    '    @subscribe("/Stock/Moved")\n    def on_moved(self, event):\n        self.log(event["sku"])\n'
)

topics, keys = st.sampled_from(TOPICS), st.sampled_from(KEYS)
plain_topics = st.sampled_from([topic for topic in TOPICS if "*" not in topic])
some_keys = st.lists(keys, min_size=1, max_size=2, unique=True)


def payload(names: list[str]) -> str:
    return "{" + ", ".join(f'"{name}": 1' for name in names) + "}"


def schema(names: list[str], kind: str) -> str:
    return "{" + ", ".join(f'"{name}": {kind}' for name in names) + "}"


kinds = st.sampled_from(["int", "str"])
numbers = st.integers(0, 2)
MEMBERS = st.one_of(
    st.builds(
        lambda topic, key, n: (
            f'    @subscribe("{topic}")\n    def on_{n}(self, event):\n        self.log(event["{key}"])\n'
        ),
        topics,
        keys,
        numbers,
    ),
    st.builds(
        lambda topic, given, n: f'    def send_{n}(self):\n        self.publish("{topic}", {payload(given)})\n',
        plain_topics,
        some_keys,
        numbers,
    ),
    st.builds(
        lambda topic, n: f'    def ask_{n}(self):\n        return self.request("{topic}", {{}})\n',
        plain_topics,
        numbers,
    ),
    st.builds(
        lambda given, kind, made, n: (
            f"    @schema_method({schema(given, kind)}, {schema(made, kind)})\n"
            f"    def work_{n}(self, {', '.join(given)}):\n        return {payload(made)}\n"
        ),
        some_keys,
        kinds,
        some_keys,
        numbers,
    ),
    st.builds(
        lambda other, n, given: (
            f'    def call_{n}(self):\n        self.call("{other}", "work_{n}", {", ".join(f"{k}=1" for k in given)})\n'
        ),
        st.sampled_from([*NAMES, "Nobody"]),
        numbers,
        some_keys,
    ),
    st.builds(
        lambda status, error, n: (
            f'    @schema_method({{}}, {{"{status}": str, "{error}": str}})\n    def fail_{n}(self) -> dict:\n'
            f'        return {{"{status}": "", "{error}": ""}}\n'
        ),
        st.sampled_from(["status", "success"]),
        st.sampled_from(["error", "error_message"]),
        numbers,
    ),
    st.sampled_from(
        [
            "    def keep(self, items=[]):\n        try:\n            return items\n        except:\n            pass\n",
            '    def note(self):\n        print("/Order/Placed", "/Order/Plced")\n',
            '    def tell(self, bus):\n        bus.emit("/Stock/Moved")\n',
            "    # graphbus: ignore-file[GB002]\n    mark = 1\n",
            "    # graphbus: ignore-file\n    mark = 2\n",
            '    def send_any(self, name):\n        self.publish(f"/Order/{name}", {})\n',
            '    @subscribe("order placed")\n    def on_odd(self, event):\n        pass\n',
            '    @subscribe("/Stock/Moved")\n    def on_three(self, a, /, b):\n        pass\n',
        ]
    ),
)


@st.composite
def agents(draw: st.DrawFn, name: str) -> str:
    """One class with a few members, a dependency, and lines above it that move the rest."""
    needs = draw(st.sampled_from(["", "", "", *(f'@depends_on("{other}")\n' for other in [*NAMES, "Nobody"])]))
    base = draw(st.sampled_from(["GraphBusNode"] * 5 + ["Shared"]))
    members = draw(st.lists(MEMBERS, min_size=1, max_size=3))
    above = "\n" * draw(st.integers(2, 5))
    return f"{above}{needs}class {name}({base}):\n" + "\n".join(members)


@st.composite
def files(draw: st.DrawFn, path: str) -> str:
    """One file: mostly a class of its own name; sometimes two, another one's name, no agent, or no Python."""
    name = path.removesuffix(".py").capitalize()
    head = f"{HEAD}from shared import Shared\n"
    odd = draw(st.integers(0, 14))
    if odd == 0:
        return "def nothing():\n    return 1\n"
    if odd == 1:
        return head + "\n\nclass Broken(\n"
    if odd == 2:
        return head + draw(agents(name)) + draw(agents(draw(st.sampled_from([*NAMES, "Further"]))))
    return head + draw(agents(name))


PATHS = [f"{name.lower()}.py" for name in NAMES]


@st.composite
def histories(draw: st.DrawFn) -> tuple[dict[str, str], list[dict[str, bytes]]]:
    """The files at first, and what is changed one step after another; some steps take an earlier text again."""
    first = {"shared.py": SHARED, **{path: draw(files(path)) for path in PATHS}}
    written = {path: [text.encode()] for path, text in first.items()}
    steps: list[dict[str, bytes]] = []
    for _ in range(draw(st.integers(1, 4))):
        step: dict[str, bytes] = {}
        for path in draw(st.lists(st.sampled_from([*PATHS, *PATHS, "shared.py"]), min_size=1, max_size=2, unique=True)):
            fresh = draw(files(path)).encode() if path != "shared.py" else SHARED.replace("sku", draw(keys)).encode()
            step[path] = draw(st.sampled_from([fresh, fresh, fresh, *written[path]]))
            written[path].append(fresh)
        steps.append(step)
    return first, steps


def read_anew(project: Project, changed: dict[str, bytes]) -> Project:
    """The reference: every file of the project is read, and everything is worked out from that."""
    folder = Path(project.config.root)
    for path, data in changed.items():
        (folder / path).write_bytes(data)
    return Project.read(project.config, cache=False)


def told(project: Project) -> dict[str, object]:
    return {
        "definitions": project.definitions,
        "edges": project.graph.edges,
        "nodes": project.graph.nodes,
        "topics": project.graph.topics,
        "arbiters": project.graph.arbiters,
        "order": project.order,
        "errors": [(error.code, str(error)) for error in project.errors],
        "files": project.agent_files,
        "owners": [project.owners(path) for path in project.agent_files],
        "digests": project.digests,
        "inputs": project.inputs,
        "local findings": project.local_findings,
        "ignores": [project.ignores(path) for path in project.agent_files],
    }


@given(histories())
@settings(max_examples=40)
def test_reading_what_changed_comes_to_what_reading_all_comes_to(
    history: tuple[dict[str, str], list[dict[str, bytes]]],
) -> None:
    first, steps = history
    with tempfile.TemporaryDirectory() as name:
        project = read_files(Path(name), first)
        for step in steps:
            project = project.with_files(step)
            assert told(project) == told(read_anew(project, step))
