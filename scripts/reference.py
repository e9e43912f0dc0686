"""Generates the pages on errors, configuration, commands, rules and the live view, the tree in docs/architecture.md,
the requirements of the protocol, and the changelog.

Without options the pages are written; `--check` only compares and fails when one is out of date.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import click
import msgspec

from graphbus_core import errors
from graphbus_core.build import BUILD, STATIC
from graphbus_core.cli import COMMANDS, graphbus
from graphbus_core.compiler.rules import REGISTER as RULES
from graphbus_core.errors.register import REGISTER
from graphbus_core.hosting.instruments.trace import TracedDelivery
from graphbus_core.model import config
from graphbus_core.model.powers import Powers
from graphbus_core.negotiation.gbnp.requirements import REQUIREMENTS, SECTIONS
from graphbus_core.pipeline import Pipeline
from graphbus_core.runtime import PIPELINE as RUNTIME
from graphbus_core.view import messages

ROOT = Path(__file__).resolve().parent.parent
UNRELEASED = "<!-- unreleased: made from changes/ by scripts/reference.py -->"
TREE = "<!-- tree: made from the module docstrings by scripts/reference.py -->"
REQUIRED = "<!-- requirements: made from negotiation/gbnp/requirements.py by scripts/reference.py -->"
STAGES = "<!-- stages: made from both pipelines by scripts/reference.py -->"
MADE = "<!-- Made by scripts/reference.py from the code; change it there. -->\n"

FAMILIES = (
    (errors.UsageError, 1, "Usage and configuration"),
    (errors.BuildError, 2, "Reading source files and building the graph"),
    (errors.EditError, 3, "Changing source files"),
    (errors.NegotiationError, 4, "Negotiations"),
    (errors.ArtifactError, 5, "Artifacts"),
    (errors.RunError, 6, "Running a graph"),
    (errors.DeployError, 7, "Shipping"),
)
TABLES = (
    ("tool.graphbus", config.Settings, "Which files are read, what is checked, and what agents work towards."),
    ("tool.graphbus.safety", config.SafetyConfig, ""),
    ("tool.graphbus.llm", config.LLMConfig, ""),
    ("tool.graphbus.budget", config.Budget, ""),
    ("tool.graphbus.gate", config.GateConfig, ""),
    ("tool.graphbus.powers", Powers, "What agents may do beyond computing; see [Powers](powers.md)."),
    ("tool.graphbus.runtime", config.RuntimeSettings, "How a running graph behaves."),
    (
        "tool.graphbus.runtime.serve",
        config.ServeConfig,
        "HTTP with `graphbus run --serve`; see [HTTP](http.md). `--host` and `--port` override it.",
    ),
    ("tool.graphbus.runtime.nats", config.NatsConfig, "The stream of a [ledger on NATS](ledgers.md#settings)."),
)
NAMED = (
    (
        "tool.graphbus.llm.providers.NAME",
        config.ProviderConfig,
        'A server of models, for `model = "NAME:model"`; as many tables as you like. [Models](models.md) has examples.',
    ),
    (
        "tool.graphbus.agents.NAME",
        config.AgentProgram,
        "A program that represents the class NAME in negotiations; see [Agents in any language](protocol/index.md).",
    ),
)
"""Tables whose last name the user chooses."""


VIEW_INTRO = """\
What the page of [the live view](view.md) reads, for your own tools. On a loopback address reading needs no token, except
payloads. A request with the token has the header `Authorization: Bearer TOKEN`, or the cookie that `GET /view/?token=TOKEN`
sets; a `POST` with the cookie also needs the header `X-GraphBus-View: 1`. Fields may be added in later versions.
"""
ERRORS_INTRO = """\
Each error has a code, a sentence that says what happened, the place (`file:line`) if there is one, and a hint. Errors go to
stderr without a traceback; with `--json` they are one JSON document on stdout. The family decides the
[exit status](command-line.md#exit-status); 1 means a bug in GraphBus, 130 that you pressed Ctrl-C. Codes are never reused or
renumbered. Findings of `graphbus check` (GB001 …) have [pages of their own](rules/index.md).
"""
CONFIGURATION_INTRO = """\
GraphBus reads `[tool.graphbus]` of the nearest `pyproject.toml`. Every key has a default, so the table may be empty or missing.
An unknown key is an error that lists the known ones. Options on the command line override the file. `graphbus --config FILE` or
the variable `GRAPHBUS_CONFIG` names a file that [overrides it too](command-line.md#folder-and-settings).

The defaults, ready to copy:
"""
RULES_INTRO = """\
[Checking a project](checking.md) explains `graphbus check`, its comments, settings and exit status. A *safe* fix changes nothing
for other agents and callers; a *negotiated* fix is proposed to the agents that it concerns.
"""
CLI_INTRO = """\
[The command line](command-line.md) describes what all commands have in common: streams, JSON, exit status, colour, settings,
completion. The texts below are those of `--help`.
"""


def errors_page() -> str:
    """Every code with its sentence and hint, by family."""
    parts = [
        "# Error codes\n",
        MADE,
        ERRORS_INTRO,
    ]
    for family, hundred, title in FAMILIES:
        parts.append(f"## {title}: exit status {family.exit_status}\n")
        parts.append(f"`{family.__name__}`: {sentence_case(family.__doc__ or '')}\n")
        for code, entry in REGISTER.items():
            if code.startswith(f"GBE{hundred}"):
                parts.append(
                    f"### {code}\n\n{for_readers(entry.sentence)}\n\n*What to do:* {for_readers(entry.hint)}\n"
                )
    return "\n".join(parts)


def sentence_case(doc: str) -> str:
    """The first sentence of a docstring, ready to stand after a colon."""
    first = doc.strip().split("\n")[0]
    return first[0].lower() + first[1:]


def for_readers(template: str) -> str:
    """A template without its values: fields in italics, inside code in capitals; the optional "did you mean" is left out."""
    prose_and_code = template.replace("{suggestion}", "").replace("<", "&lt;").split("`")
    prose_and_code[::2] = [re.sub(r"\{(\w+)[^}]*\}", in_italics, prose) for prose in prose_and_code[::2]]
    prose_and_code[1::2] = [re.sub(r"\{(\w+)[^}]*\}", in_capitals, code) for code in prose_and_code[1::2]]
    return "`".join(prose_and_code).strip()


def in_italics(field: re.Match[str]) -> str:
    """A field in a sentence."""
    return (
        "*(what fits the cause; the message states it.)*" if field[1] == "advice" else f"*{field[1].replace('_', ' ')}*"
    )


def in_capitals(field: re.Match[str]) -> str:
    """A field in code."""
    return field[1].upper()


def configuration_page() -> str:
    """Every key of `[tool.graphbus]` with type, default and meaning."""
    parts = [
        "# Configuration\n",
        MADE,
        CONFIGURATION_INTRO,
        "```toml",
        defaults_as_toml(),
        "```\n",
    ]
    for name, kind, intro in sorted([*TABLES, *NAMED], key=place_of):
        parts.append(f"## `[{name}]`\n")
        parts.append(f"{intro or first_sentence(kind)}\n")
        parts.append("| key | type | default | meaning |\n|---|---|---|---|")
        meanings = attributes(kind)
        for field in scalar_fields(kind):
            default = "required" if field.required else f"`{as_toml(default_of(field))}`"
            row = (f"`{field.name}`", type_name(field.type), default, meanings[field.name])
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
        parts.append("")
    return "\n".join(parts)


def place_of(table: tuple[str, type, str]) -> int:
    """A table of named tables stands after the one that it belongs to."""
    names = [name for name, _, _ in TABLES]
    return next(names.index(name) for name in sorted(names, key=len, reverse=True) if table[0].startswith(name))


def first_sentence(kind: type) -> str:
    """The first sentence of a docstring, without its source."""
    return re.sub(r" Source:.*", "", (kind.__doc__ or "").split("\n")[0])


def attributes(kind: type) -> dict[str, str]:
    """The `Attributes:` of a docstring: name -> meaning, continued lines joined."""
    found: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc(kind.__doc__ or "").partition("Attributes:")[2].splitlines():
        start = re.fullmatch(r"    (\w+): (.*)", line)
        if start:
            name = start[1]
            found[name] = start[2]
        elif name and line.strip():
            found[name] += " " + line.strip()
    return {name: re.sub(r" \(seed \d+\)", "", meaning) for name, meaning in found.items()}


def scalar_fields(kind: type[msgspec.Struct]) -> list[msgspec.structs.FieldInfo]:
    """The keys of one table; those that hold a table of their own are left out."""
    return [field for field in msgspec.structs.fields(kind) if not isinstance(field.default, msgspec.Struct)]


def type_name(kind: object) -> str:
    """A type in the words of TOML."""
    simple: dict[object, str] = {str: "string", int: "whole number", float: "number", bool: "true or false"}
    if kind in simple:
        return simple[kind]
    choices_of = get_args(kind)
    if choices_of and get_origin(choices_of[-1]) is Literal:
        return f'{simple[choices_of[0]].replace(" or", ",")} or `"auto"`'
    choices = re.fullmatch(r"typing\.Literal\[(.*)\]", str(kind))
    if choices:
        return " or ".join(f"`{choice.strip()}`" for choice in choices[1].replace("'", '"').split(","))
    if str(kind).startswith("dict["):
        return "table"
    return "list of lists of strings" if str(kind).startswith("tuple[tuple") else "list of strings"


def default_of(field: msgspec.structs.FieldInfo) -> object:
    """The default of a key."""
    return {} if field.default is msgspec.NODEFAULT else field.default


def as_toml(value: object) -> str:
    """A default as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def defaults_as_toml() -> str:
    """A whole `[tool.graphbus]` that changes nothing."""
    blocks = []
    for name, kind, _ in TABLES:
        lines = [f"{field.name} = {as_toml(default_of(field))}" for field in scalar_fields(kind)]
        blocks.append("\n".join([f"[{name}]", *lines]))
    return "\n\n".join(blocks)


def rules_page() -> str:
    """Every rule with what it finds, its severity and its kind of fix."""
    rows = []
    for rule in RULES.values():
        severity = rule.severity if rule.is_default else f"{rule.severity}, off by default"
        fix = ("safe" if rule.is_safe else "negotiated") if rule.is_fixable else ""
        rows.append(f"| [{rule.code}]({rule.code}.md) | {rule.summary} | {severity} | {fix} |")
    return "\n".join(
        ["# Rules\n", MADE, RULES_INTRO, "| code | finds | severity | fix |", "|---|---|---|---|", *rows, ""]
    )


def cli_page() -> str:
    """The help text of every command."""
    parts = [
        "# Commands\n",
        MADE,
        CLI_INTRO,
        "```text",
        help_of(graphbus, "graphbus"),
        "```\n",
    ]
    section = ""
    for name, entry in COMMANDS.items():
        if entry.section != section:
            section = entry.section
            parts.append(f"## {section}\n")
        module, _, attribute = entry.target.partition(":")
        command = getattr(import_module(module), attribute)
        for full, each in with_parts(command, f"graphbus {name}"):
            parts.append(f"### {full}\n\n```text\n{help_of(each, full)}\n```\n")
    return "\n".join(parts)


def with_parts(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """A command and those below it, with their whole names."""
    yield name, command
    for part, each in getattr(command, "commands", {}).items():
        yield from with_parts(each, f"{name} {part}")


def help_of(command: click.Command, name: str) -> str:
    """The help text at a width that is the same everywhere."""
    context = click.Context(command, info_name=name, terminal_width=80, **graphbus.context_settings)
    return command.get_help(context).rstrip()


def changelog() -> str:
    """CHANGELOG.md with the section "Unreleased" written from the fragments."""
    areas = sorted(fragment for fragment in (ROOT / "changes").glob("*.md") if fragment.name != "README.md")
    parts = [f"### {area.stem.replace('-', ' ').capitalize()}\n\n{bullets(area)}" for area in areas]
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return between(text, UNRELEASED, "\n\n".join(["## Unreleased", *parts]))


def bullets(fragment: Path) -> str:
    """The lines of a fragment; a heading of its own is left out."""
    lines = fragment.read_text(encoding="utf-8").strip().splitlines()
    return "\n".join(line for line in lines if not line.startswith("#")).strip()


def architecture_page() -> str:
    """docs/architecture.md with the tree of modules and the tables of stages written again."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "graphbus_core"
    lines = ["```text", f"{'src/graphbus_core/':<27} {purpose(package)}", *tree(package, "  "), "```"]
    return between(between(text, TREE, "\n".join(lines)), STAGES, stage_tables())


def specification_page() -> str:
    """docs/protocol/specification.md with the list of requirements written again."""
    text = (ROOT / "docs" / "protocol" / "specification.md").read_text(encoding="utf-8")
    parts = []
    for section in SECTIONS:
        rows = [f"| {number} | {REQUIREMENTS[number].side} | {text} |" for number, text in section.texts.items()]
        parts.append("\n".join([f"### {section.title}", "", "| number | binds | |", "|---|---|---|", *rows]))
    return between(text, REQUIRED, "\n\n".join(parts))


def between(text: str, opening: str, made: str) -> str:
    """The text with the part between its markers replaced."""
    before, _, rest = text.partition(opening)
    closing = f"<!-- /{opening.split()[1].rstrip(':')} -->"
    if closing not in rest:
        raise ValueError(f"the markers {opening} and {closing} are missing")
    return f"{before}{opening}\n\n{made}\n\n{closing}{rest.partition(closing)[2]}"


def stage_tables() -> str:
    """Both pipelines: number, name, inputs and output of each stage."""
    static = {stage.function for stage in STATIC}
    negotiated = [stage.name for stage in BUILD if stage.function not in static]
    tables = [
        stage_table("Build Mode", BUILD, negotiated),
        "\\* left out of a static build",
        stage_table("Runtime Mode", RUNTIME, ()),
    ]
    return "\n\n".join(tables)


def stage_table(title: str, pipeline: Pipeline, starred: Sequence[str]) -> str:
    """One pipeline as a table."""
    rows = [f"| | stage of {title} | takes | gives |", "|---|---|---|---|"]
    for number, stage in enumerate(pipeline, start=1):
        star = " \\*" if stage.name in starred else ""
        rows.append(f"| {number} | {stage.name}{star} | {', '.join(stage.takes)} | {stage.gives} |")
    return "\n".join(rows)


def tree(folder: Path, indent: str) -> Iterator[str]:
    """One line per module, then one per package with its modules below it."""
    for module in sorted(folder.glob("*.py")):
        if module.stem not in ("__init__", "__main__"):
            yield f"{indent + module.name:<27} {purpose(module)}"
    for package in sorted(path.parent for path in folder.glob("*/__init__.py")):
        yield f"{indent + package.name + '/':<27} {purpose(package)}"
        yield from tree(package, indent + "  ")


def purpose(path: Path) -> str:
    """The first sentence of a module's or package's docstring, without its full stop."""
    source = path / "__init__.py" if path.is_dir() else path
    doc = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(doc.partition("\n\n")[0].split())
    return re.split(r"(?<=[a-z)`\]])[.;] ", paragraph + " ", maxsplit=1)[0].strip().removesuffix(".")


def view_page() -> str:
    """Every message of the live view with its fields."""
    endpoints = inspect.cleandoc(messages.__doc__ or "").split("\n\n")[1]
    parts = ["# The API of the live view\n", MADE, VIEW_INTRO, f"```text\n{inspect.cleandoc(endpoints)}\n```\n"]
    kinds = [each for each in vars(messages).values() if isinstance(each, type) and issubclass(each, msgspec.Struct)]
    for kind in (each for each in kinds if each.__module__ == messages.__name__ and each is not messages.Message):
        parts.append(
            f"## {kind.__name__}\n\n{inspect.cleandoc(kind.__doc__ or '').partition('Attributes:')[0].strip()}\n"
        )
        parts.append("| field | type | meaning |\n|---|---|---|")
        meanings = (
            attributes(kind) if kind is not messages.Delivery else {**attributes(TracedDelivery), **attributes(kind)}
        )
        hints = get_type_hints(kind)
        for field in msgspec.structs.fields(kind):
            row = (f"`{field.name}`", f"`{json_type(hints[field.name])}`", meanings.get(field.name, ""))
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
        parts.append("")
    return "\n".join(parts)


def json_type(kind: Any) -> str:
    """A type as JSON has it, in the notation of TypeScript."""
    simple = {str: "string", int: "number", float: "number", bool: "boolean", type(None): "null", Any: "any"}
    if kind in simple:
        return simple[kind]
    if get_origin(kind) is Literal:
        return " | ".join(f'"{choice}"' for choice in get_args(kind))
    if get_origin(kind) is dict:
        return f"{{[name: string]: {json_type(get_args(kind)[1])}}}"
    if get_origin(kind) is tuple:
        of = [json_type(each) for each in get_args(kind) if each is not Ellipsis]
        is_list = Ellipsis in get_args(kind)
        return (f"({of[0]})[]" if " " in of[0] else f"{of[0]}[]") if is_list else f"[{', '.join(of)}]"
    if get_origin(kind) in (Union, UnionType):
        return " | ".join(map(json_type, get_args(kind)))
    return str(kind.__name__)


PAGES: dict[str, Callable[[], str]] = {
    "docs/errors.md": errors_page,
    "docs/configuration.md": configuration_page,
    "docs/cli.md": cli_page,
    "docs/rules/index.md": rules_page,
    "docs/view-api.md": view_page,
    "docs/architecture.md": architecture_page,
    "docs/protocol/specification.md": specification_page,
    "CHANGELOG.md": changelog,
}


def outdated() -> list[str]:
    """A diff for each page that differs from what the code says."""
    found = []
    for name, make in PAGES.items():
        path = ROOT / name
        old = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        new = make().splitlines()
        if old != new:
            found.append("\n".join(difflib.unified_diff(old, new, name, "the code", lineterm="", n=1)))
    return found


def main() -> int:
    """Write the pages, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; fail when a page is out of date")
    if not parser.parse_args().check:
        for name, make in PAGES.items():
            (ROOT / name).write_text(make(), encoding="utf-8")
        return 0
    differences = outdated()
    for difference in differences:
        print(difference[:3000])
    if differences:
        print("out of date: run `.venv/bin/python scripts/reference.py` and commit the pages")
    return bool(differences)


if __name__ == "__main__":
    sys.exit(main())
