"""The compiler reads back exactly what was written, whatever it is, and never breaks on any Python."""

from __future__ import annotations

import ast
import sysconfig
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphbus_core.compiler.discover import ModuleIndex
from graphbus_core.compiler.reading.classes import read_agent
from graphbus_core.compiler.reading.endings import reaches_end
from graphbus_core.compiler.reading.modules import Library
from graphbus_core.model.agent import AgentDefinition
from tests.reading import HEAD

# --- random agents, rendered and read back ----------------------------------------------------------

NAMES = st.sampled_from(["alpha", "beta", "gamma", "delta", "sku", "left", "order_id"])
TYPES = st.sampled_from(["str", "int", "float", "bool", "list[str]", "dict[str, int]", "int | None"])
VALUES = st.sampled_from(
    [("1", "int"), ("'x'", "str"), ("1.5", "float"), ("True", "bool"), ("None", "None"), ("x", "?")]
)
TOPICS = st.sampled_from(["/A", "/A/B", "/Order/Created", "/x-1/y_2", "/**", "/A/*"])
FIELDS = st.dictionaries(NAMES, TYPES, max_size=3)


@st.composite
def _agents(draw: st.DrawFn) -> tuple[str, dict[str, object]]:
    """The text of a class, and the facts that it states."""
    prompt = draw(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=20))
    needs = draw(st.lists(st.sampled_from(["B", "C", "D"]), unique=True))
    lines = [f"@depends_on({', '.join(map(repr, needs))})"] if needs else []
    lines += ["class A(GraphBusNode):", f"    SYSTEM_PROMPT = {prompt!r}", f"    IS_ARBITER = {draw(st.booleans())}"]
    facts: dict[str, list[object]] = {"methods": [], "heard": [], "said": []}
    for number in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["schema", "event", "fields", "says"]))
        name = f"m{number}"
        if kind == "schema":
            taken, given_ = draw(FIELDS), draw(FIELDS)
            shown = [", ".join(f"{key!r}: {kind_}" for key, kind_ in part.items()) for part in (taken, given_)]
            parameters = "".join(f", {key}: {kind_}" for key, kind_ in taken.items())
            lines += [
                f"    @schema_method({{{shown[0]}}}, {{{shown[1]}}})",
                f"    def {name}(self{parameters}): raise E",
            ]
            facts["methods"].append((name, taken, given_))
        elif kind == "event":
            topic, keys = (
                draw(TOPICS),
                draw(st.lists(st.tuples(NAMES, st.booleans()), max_size=3, unique_by=lambda k: k[0])),
            )
            lines += [f"    @subscribe({topic!r})", f"    def {name}(self, event):", "        pass"]
            lines += [
                f"        event.get({key!r})" if optional else f"        event[{key!r}]" for key, optional in keys
            ]
            facts["heard"].append((topic, name, "event", sorted(keys), []))
        elif kind == "fields":
            topic, fields = draw(TOPICS), draw(FIELDS)
            parameters = "".join(f", {key}: {kind_}" for key, kind_ in fields.items())
            lines += [f"    @subscribe({topic!r})", f"    def {name}(self, first_one{parameters}): pass"]
            facts["heard"].append((topic, name, "fields", [], ["first_one", *fields]))
        else:
            topic, payload = draw(TOPICS), draw(st.dictionaries(NAMES, VALUES, max_size=3))
            shown_payload = ", ".join(f"{key!r}: {value}" for key, (value, _) in payload.items())
            lines += [f"    def {name}(self, x): self.publish({topic!r}, {{{shown_payload}}})"]
            facts["said"].append((topic, name, {key: kind_ for key, (_, kind_) in payload.items()}))
    expected = {"needs": needs, "prompt": prompt.strip(), **facts}
    return "\n".join(lines) + "\n", expected


def _facts(agent: AgentDefinition) -> dict[str, object]:
    return {
        "needs": [item.name for item in agent.dependencies],
        "prompt": agent.system_prompt.strip(),
        "methods": [
            (
                spec.name,
                {field.name: str(field.type) for field in spec.input_schema.fields} if spec.input_schema else None,
                {field.name: str(field.type) for field in spec.output_schema.fields} if spec.output_schema else None,
            )
            for spec in agent.methods
            if spec.has_schema
        ],
        "heard": [
            (
                item.topic,
                item.method,
                item.shape,
                sorted((read.key, read.is_optional) for read in item.reads),
                [field.name for field in item.fields],
            )
            for item in agent.subscriptions
        ],
        "said": [
            (
                item.topic,
                item.method,
                {field.name: str(field.type) for field in item.payload.fields} if item.payload else None,
            )
            for item in agent.publications
        ],
    }


def _read(text: str, name: str = "A") -> AgentDefinition:
    index = ModuleIndex("/nowhere", (), (), ())
    module = Library(index, lambda path: text.encode()).parsed("module.py")
    assert module is not None
    node = next(node for node, _ in module.bindings.classes if node.name == name)
    return read_agent(Library(index, lambda path: None), module, node)[0]


@given(_agents())
def test_what_is_written_is_what_is_read(drawn: tuple[str, dict[str, object]]) -> None:
    text, expected = drawn
    agent = _read(HEAD + text)
    assert _facts(agent) == expected
    assert all(item.reads_all_known for item in agent.subscriptions)


@given(_agents(), st.integers(0, 3))
def test_moving_a_class_changes_neither_its_contract_nor_its_text(
    drawn: tuple[str, dict[str, object]], lines: int
) -> None:
    text, _ = drawn
    here, there = _read(HEAD + text), _read(HEAD + "# moved\n" * lines + text)
    assert (here.source_digest, here.contract_digest) == (there.source_digest, there.contract_digest)
    assert there.span.line == here.span.line + lines


# --- the standard library -----------------------------------------------------------------------------

STDLIB = Path(sysconfig.get_path("stdlib"))
SOURCES = sorted(path for path in STDLIB.glob("*.py") if path.stat().st_size < 120_000)


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SOURCES))
def test_no_class_of_the_standard_library_breaks_the_reader(path: Path) -> None:
    data = path.read_bytes()
    index = ModuleIndex(str(STDLIB), (), (".",), ())
    library = Library(index, lambda wanted: (STDLIB / wanted).read_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = library.parsed(path.name, data)
        assert module is not None
        for node, _ in module.bindings.classes:
            agent, _ = read_agent(library, module, node)
            text = module.source.span_bytes(agent.name_span).decode()
            assert text == agent.name == node.name
            for spec in agent.methods:
                assert spec.span.line <= spec.span.end_line


# --- how bodies end, against running them -------------------------------------------------------------


SIMPLE = {
    "pass": ["pass"],
    "return": ["return 1"],
    "raise": ["raise Stop"],
    "break": ["break"],
    "continue": ["continue"],
}
COMPOUND = {
    "if": ["if next(choice):", 0],
    "if-else": ["if next(choice):", 0, "else:", 0],
    "try": ["try:", "    if next(choice): raise KeyError", 0, "except KeyError:", 0],
    "try-finally": ["try:", 0, "finally:", "    pass"],
    "with": ["with nothing:", 0],
    "while": ["while next(choice):", 1],
    "while-else": ["while next(choice):", 1, "else:", 0],
    "while-true": ["while True:", "    next(choice)", 1],
}
"""Lines; 0 stands for a block, 1 for the block of a loop."""


@st.composite
def _statements(draw: st.DrawFn, depth: int = 0, in_loop: bool = False) -> list[str]:
    """Lines of a body whose conditions `next(choice)` can come out either way, each for itself."""
    lines: list[str] = []
    kinds = [kind for kind in SIMPLE if in_loop or kind not in ("break", "continue")]
    for _ in range(draw(st.integers(1, 2))):
        kind = draw(st.sampled_from([*kinds, *(COMPOUND if depth < 3 else ())]))
        for part in SIMPLE.get(kind) or COMPOUND[kind]:
            if isinstance(part, str):
                lines.append(part)
            else:
                lines += ["    " + line for line in draw(_statements(depth + 1, in_loop or part == 1))]
    return lines


class _Stop(Exception):
    pass


class _Enough(BaseException):
    """The choices are used up."""


@given(_statements())
def test_an_end_that_some_run_reaches_is_known_and_no_other_is_claimed(lines: list[str]) -> None:
    from contextlib import nullcontext

    text = "def f(choice):\n" + "\n".join("    " + line for line in lines)
    claimed = reaches_end(ast.parse(text).body[0].body)  # type: ignore[attr-defined]
    space: dict[str, object] = {"Stop": _Stop, "nothing": nullcontext()}
    exec(compile(text, "body", "exec"), space)
    observed = {_outcome(space["f"], choices) for choices in product((False, True), repeat=7)}
    assert claimed == ("end" in observed) or (claimed and "enough" in observed), text


def _outcome(function: object, choices: tuple[bool, ...]) -> str:
    def choose() -> Iterator[bool]:
        yield from choices
        raise _Enough

    try:
        return "returned" if function(choose()) == 1 else "end"  # type: ignore[operator]
    except (_Stop, KeyError):
        return "raised"
    except _Enough:
        return "enough"
