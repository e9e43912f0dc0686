"""A project in which a file changes is read and checked in part; it must come to what reading and checking all of it comes to."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphbus_core.compiler import rules
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.rules.again import check_again
from tests.reading import HEAD, read_files

pytestmark = pytest.mark.slow

TOPICS = ["/Order/Placed", "/Order/Plced", "/Order/*", "/Stock/**"]
KEYS = ["sku", "skuu", "quantity", "price"]
NAMES = ["Shop", "Stock", "Mail", "Till", "Audit", "Post", "Desk"]
SHARED = HEAD + (
    "\n\nclass Shared(GraphBusNode):\n    abstract = True\n\n"
    '    @subscribe("/Stock/Moved")\n    def on_moved(self, event):\n        self.log(event["sku"])\n'
)

PLAIN = ["/Order/Placed", "/Stock/Moved", "/Mail/Sent", "/Till/Closed", "/Audit/Done"]
HUB = HEAD + "\n\nclass Hub(GraphBusNode):\n    def send(self):\n"
HUB += "".join(f'        self.publish("{topic}", {{"sku": 1}})\n' for topic in PLAIN)
HUB += "".join(f'\n    @subscribe("{topic}")\n    def on_{n}(self):\n        pass\n' for n, topic in enumerate(PLAIN))
"""Each topic has both ends, so that most changes concern few."""

topics = st.sampled_from([*PLAIN * 4, *TOPICS])
keys = st.sampled_from(KEYS)
plain_topics = topics.filter(lambda topic: "*" not in topic)
some_keys = st.lists(keys, min_size=1, max_size=2, unique=True)


def payload(names: list[str]) -> str:
    return "{" + ", ".join(f'"{name}": 1' for name in names) + "}"


def schema(names: list[str], kind: str) -> str:
    return "{" + ", ".join(f'"{name}": {kind}' for name in names) + "}"


rarely, hardly_ever = st.integers(0, 20), st.integers(0, 120)
kinds = st.sampled_from(["int", "str"])
numbers = st.integers(0, 2)
EVENTS = st.one_of(
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
)
MEMBERS = st.one_of(
    *[EVENTS] * 12,
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
        st.sampled_from([*NAMES, *NAMES, "Nobody"]),
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
        ]
    ),
)


@st.composite
def agents(draw: st.DrawFn, name: str) -> str:
    """One class with a few members, a dependency, and lines above it that move the rest."""
    other = (
        draw(st.sampled_from(["", "", "", "", *NAMES[: NAMES.index(name)], *["Nobody"] * (draw(hardly_ever) == 0)]))
        if name in NAMES
        else ""
    )
    needs = f'@depends_on("{other}")\n' if other else ""
    base = "Shared" if draw(rarely) == 0 else "GraphBusNode"
    members = draw(st.lists(MEMBERS, min_size=1, max_size=3))
    above = "\n" * draw(st.integers(2, 5))
    return f"{above}{needs}class {name}({base}):\n" + "\n".join(members)


@st.composite
def files(draw: st.DrawFn, path: str) -> str:
    """One file: mostly a class of its own name; sometimes two, another one's name, no agent, or no Python."""
    name = path.removesuffix(".py").capitalize()
    head = f"{HEAD}from shared import Shared\n"
    odd = draw(hardly_ever)
    if odd == 0:
        return "def nothing():\n    return 1\n"
    if odd == 1:
        return head + "\n\nclass Broken(\n"
    if odd == 2:
        return head + draw(agents(name)) + draw(agents(draw(st.sampled_from([*NAMES, "Further"]))))
    return head + draw(agents(name))


PATHS = [f"{name.lower()}.py" for name in NAMES]
WRONG = (
    '    @subscribe("order placed")\n    def on_odd(self, event):\n        pass\n',
    '    @subscribe("/Stock/Moved")\n    def on_three(self, a, /, b):\n        pass\n',
)
ADDITIONS = (
    *("\n# a comment\n", "    def further(self):\n        return 1\n", "    # graphbus: ignore-file[GB00]\n"),
    *('    note = "/Order/Plced"\n', '    def say(self, bus):\n        bus.emit("/Order/Plced", 1)\n'),
)


@st.composite
def edited(draw: st.DrawFn, path: str, text: str) -> str:
    """Another text of a file: mostly a small edit, as agents make them."""
    kind = draw(st.integers(0, 9))
    if path == "shared.py" or kind < 4:
        return text.replace(draw(keys), draw(keys), draw(st.integers(1, 2)))
    if kind < 6:
        return text.replace("\nclass", "\n\n# moved\nclass", 1)
    if kind < 8:
        return text + draw(st.sampled_from(WRONG if draw(rarely) == 0 else ADDITIONS))
    if kind < 9:
        return f"{text}{draw(MEMBERS)}"
    return draw(files(path))


@st.composite
def histories(draw: st.DrawFn) -> tuple[dict[str, str], list[dict[str, bytes]]]:
    """The files at first, and what is changed one step after another; some steps take an earlier text again."""
    first = {"shared.py": SHARED, "hub.py": HUB, **{path: draw(files(path)) for path in PATHS}}
    written = {path: [text] for path, text in first.items()}
    steps: list[dict[str, bytes]] = []
    for _ in range(draw(st.integers(1, 6))):
        step: dict[str, bytes] = {}
        wanted = st.sampled_from([*PATHS, "shared.py"] if draw(rarely) == 0 else PATHS)
        for path in draw(st.lists(wanted, min_size=1, max_size=1 + (draw(rarely) < 5), unique=True)):
            is_taken_back = draw(rarely) < 3
            text = draw(st.sampled_from(written[path]) if is_taken_back else edited(path, written[path][-1]))
            text += "\n# the end\n" if text == written[path][-1] else ""
            written[path].append(text)
            step[path] = text.encode()
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
@settings(max_examples=20)
def test_reading_what_changed_comes_to_what_reading_all_comes_to(
    history: tuple[dict[str, str], list[dict[str, bytes]]],
) -> None:
    first, steps = history
    with tempfile.TemporaryDirectory() as name:
        project = read_files(Path(name), first)
        for step in steps:
            project = project.with_files(step)
            assert told(project) == told(read_anew(project, step))


SELECTIONS: list[dict[str, Any]] = [{}, {"select": ["ALL"]}, {"all_fixable": True}]


@given(histories(), st.sampled_from(SELECTIONS))
@settings(max_examples=20)
def test_checking_what_a_change_concerns_comes_to_what_checking_all_comes_to(
    history: tuple[dict[str, str], list[dict[str, bytes]]], how: dict[str, Any]
) -> None:
    first, steps = history
    with tempfile.TemporaryDirectory() as name:
        project = read_files(Path(name), first)
        found = rules.check(project, **how)
        for step in steps:
            after = project.with_files(step)
            found = check_again(after, project, found, **how)
            assert found == rules.check(after, **how)
            project = after
