"""Projects made at random: correct ones give no finding, one seeded defect gives exactly its finding, its fix takes it away."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphbus_core.compiler import rules
from graphbus_core.compiler.project import Project
from tests.checking import apply_fix
from tests.reading import HEAD, read_files

pytestmark = pytest.mark.slow

FIELDS = {"sku": "str", "quantity": "int", "price": "float", "is_paid": "bool", "lines": "list", "meta": "dict"}
VALUES = {"str": '"x"', "int": "3", "float": "1.5", "bool": "True", "list": "[1]", "dict": '{"a": 1}'}
TOPICS = ["/Order/Placed", "/Stock/Moved", "/Mail/Sent", "/Customer/Joined"]
LAYOUTS = {"one file": ["a.py"], "two files": ["a.py", "b/c.py"]}

Fields = tuple[str, ...]


def handler(style: str, topic: str, fields: Fields, number: int) -> str:
    """A handler of a topic that reads all of its fields, in one of several styles."""
    reads = ", ".join(f'event["{field}"]' for field in fields)
    of_data, of_payload = reads.replace("event", "data"), reads.replace("event", "payload")
    asked = reads.replace("[", ".get(").replace("]", ")")
    parameters = ", ".join(f"{field}: {FIELDS[field]}" for field in fields)
    bodies = {
        "event": f"def on_{number}(self, event):\n        self.log([{reads}])",
        "event payload": f"def on_{number}(self, event):\n        data = event.payload\n        self.log([{of_data}])",
        "payload": f"def on_{number}(self, payload):\n        self.log([{of_payload}])",
        "get": f"def on_{number}(self, event):\n        self.log([{asked}])",
        "fields": f"def on_{number}(self, {parameters}):\n        self.log({fields[0]})",
        "some fields": f"def on_{number}(self, {fields[0]}, *, other=None, **rest):\n        self.log({fields[0]}, other)",
        "async": f"async def on_{number}(self, event):\n        self.log([{reads}])",
    }
    return f'    @subscribe("{topic}")\n    {bodies[style]}\n'


def publisher(topic: str, fields: Fields, number: int, style: str) -> str:
    parameters = ", ".join(f"{field}: {FIELDS[field]}" for field in fields)
    entries = ", ".join(f'"{field}": {field}' for field in fields)
    keywords = ", ".join(f"{field}={field}" for field in fields)
    constants = ", ".join(f'"{field}": {VALUES[FIELDS[field]]}' for field in fields)
    ways = {
        "display": f'self.publish("{topic}", {{{entries}}})',
        "name": f'payload = {{{entries}}}\n        self.publish("{topic}", payload)',
        "dict": f'self.publish("{topic}", dict({keywords}))',
        "literals": f'self.publish("{topic}", {{{constants}}})',
    }
    return f"    def send_{number}(self, {parameters}):\n        {ways[style]}\n"


def method(given: Fields, result: Fields, number: int) -> str:
    inputs = ", ".join(f'"{field}": {FIELDS[field]}' for field in given)
    outputs = ", ".join(f'"{field}": {FIELDS[field]}' for field in result)
    parameters = "".join(f", {field}: {FIELDS[field]}" for field in given)
    returned = ", ".join(f'"{field}": {VALUES[FIELDS[field]]}' for field in result)
    return (
        f"    @schema_method({{{inputs}}}, {{{outputs}}})\n"
        f"    def work_{number}(self{parameters}) -> dict:\n"
        f"        if self.name:\n            return {{{returned}}}\n"
        f"        raise RuntimeError\n"
    )


SOME_FIELDS = st.lists(st.sampled_from(sorted(FIELDS)), min_size=1, max_size=4, unique=True).map(tuple)
STYLES = ["event", "event payload", "payload", "get", "fields", "some fields", "async"]


@st.composite
def correct_projects(draw: st.DrawFn) -> dict[str, str]:
    """Agents that publish, hear, offer and call; every edge has two ends that fit."""
    topics = draw(st.lists(st.sampled_from(TOPICS), min_size=1, max_size=3, unique=True))
    agents: dict[str, str] = {}
    for number, topic in enumerate(topics):
        fields = draw(SOME_FIELDS)
        style = draw(st.sampled_from(["display", "name", "dict", "literals"]))
        agents[f"Sender{number}"] = publisher(topic, fields, number, style)
        for listener in range(draw(st.integers(1, 2))):
            agents[f"Listener{number}{'AB'[listener]}"] = handler(draw(st.sampled_from(STYLES)), topic, fields, number)
    given_fields, result = draw(SOME_FIELDS), draw(SOME_FIELDS)
    agents["Worker"] = method(given_fields, result, 0)
    arguments = ", ".join(f"{field}={VALUES[FIELDS[field]]}" for field in given_fields)
    agents["Caller"] = f'    def go(self):\n        return self.call("Worker", "work_0", {arguments})\n'
    agents["Lonely"] = method(draw(SOME_FIELDS), draw(SOME_FIELDS), 1)
    names = draw(st.permutations(sorted(agents)))
    paths = LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))]
    files = dict.fromkeys(paths, HEAD)
    for number, name in enumerate(names):
        decorator = '@depends_on("Worker")\n' if name == "Caller" else ""
        files[paths[number % len(paths)]] += f"\n\n{decorator}class {name}(GraphBusNode):\n{agents[name]}"
    return files


def read(files: dict[str, str]) -> Project:
    with tempfile.TemporaryDirectory() as folder:
        project = read_files(Path(folder), files)
        for file in project.index.files:
            project.source(file.path).data  # noqa: B018 - read while the folder is there
        return project


def codes(project: Project) -> set[str]:
    return {each.code for each in rules.check(project, select=sorted(set(rules.REGISTER) - {"GB210"}))}


@given(correct_projects())
def test_a_correct_project_has_no_finding(files: dict[str, str]) -> None:
    assert codes(read(files)) == set()


def in_agent(files: dict[str, str], name: str, change: Callable[[str], str]) -> dict[str, str]:
    """Change the text of one agent."""
    for path, text in files.items():
        head, mark, rest = text.partition(f"class {name}(")
        if mark:
            body, other, tail = rest.partition("\n\n\n")
            return {**files, path: head + mark + change(body.rstrip("\n") + "\n") + other + tail}
    raise AssertionError(name)


def replaced(old: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert old in text, (old, text)
        return text.replace(old, new, 1)

    return change


DEFECTS: dict[str, tuple[str, Callable[[str], str], set[str]]] = {
    "a topic": ("Listener0A", lambda text: text.replace('subscribe("', 'subscribe("/X'), {"GB001"}),
    "a result key": ("Lonely", lambda text: _in_return(text, '{"', '{"x_'), {"GB103"}),
    "a path that returns None": ("Lonely", replaced("raise RuntimeError", "return None"), {"GB105"}),
    "a path that ends": ("Lonely", replaced("raise RuntimeError", "self.log(1)"), {"GB105"}),
    "a list": ("Lonely", replaced("raise RuntimeError", "return [1]"), {"GB104"}),
    "a parameter too many": ("Lonely", replaced(") -> dict", ", further: int) -> dict"), {"GB102"}),
    "a field too many": ("Lonely", replaced("@schema_method({", '@schema_method({"further": int, '), {"GB101"}),
    "no return annotation": ("Worker", lambda text: text.replace(" -> dict", "").replace("raise RuntimeError", "return {}"),
                             {"GB103", "GB202"}),
    "an argument too many": ("Caller", replaced('"work_0", ', '"work_0", further=1, '), {"GB110"}),
    "a method that is not there": ("Caller", replaced('"work_0"', '"work_9"'), {"GB110"}),
    "an agent that is not there": ("Caller", replaced('call("Worker"', 'call("Wrker"'), {"GB010"}),
    "a default that is changed": ("Lonely", lambda text: text + "    def g(self, x=[]):\n        x.append(1)\n", {"GB301"}),
    "a bare except": ("Lonely", lambda text: text + _trying("except:", "self.log(1)"), {"GB302"}),
    "a swallowed exception": ("Lonely", lambda text: text + _trying("except Exception:", "pass"), {"GB303"}),
    "a wait": ("Lonely", lambda text: text + "    async def h(self):\n        import time\n        time.sleep(1)\n", {"GB310"}),
}  # fmt: skip


def _in_return(text: str, old: str, new: str) -> str:
    head, mark, rest = text.partition("return ")
    return head + mark + rest.replace(old, new, 1)


def _trying(clause: str, body: str) -> str:
    return f"    def t(self):\n        try:\n            self.log(0)\n        {clause}\n            {body}\n"


@pytest.mark.parametrize("name", DEFECTS)
@settings(max_examples=15)
@given(files=correct_projects())
def test_one_defect_gives_its_finding_and_its_fix_takes_it_away(name: str, files: dict[str, str]) -> None:
    agent, change, expected = DEFECTS[name]
    project = read(in_agent(files, agent, change))
    assert all(error.code in rules.COVERED_ERRORS for error in project.errors)
    assert codes(project) - {"GB002"} == expected  # a topic whose only listener goes astray is heard by nobody
    for finding in rules.check(project):
        fix = rules.fix_for(finding, project)
        assert (fix is not None) == finding.is_fixable
        if fix is not None:
            before = {each.key for each in rules.check(project)}
            after = {each.key for each in rules.check(apply_fix(project, fix))}
            assert finding.key not in after
            assert after <= before


@pytest.mark.parametrize("style", ["event", "event payload", "payload", "async"])
@given(fields=SOME_FIELDS, sending=st.sampled_from(["display", "name", "dict", "literals"]), at=st.integers(0, 3))
@settings(max_examples=15)
def test_a_misspelled_key_is_found_in_every_style_and_fixed(style: str, fields: Fields, sending: str, at: int) -> None:
    key = fields[at % len(fields)]
    text = HEAD + f"class S(GraphBusNode):\n{publisher('/T', fields, 0, sending)}"
    listener = handler(style, "/T", fields, 0).replace(f'"{key}"', f'"{key}{key[-1]}"')
    project = read({"a.py": f"{text}\n\nclass L(GraphBusNode):\n{listener}"})
    (finding,) = rules.check(project)
    assert (finding.code, finding.data["old"]) == ("GB003", key + key[-1])
    fix = rules.fix_for(finding, project)
    assert fix is not None
    assert rules.check(apply_fix(project, fix)) == ()
