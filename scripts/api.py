"""Writes the API reference into docs/api/ from the docstrings of the public names, and the source files to which it links.

`scripts/docs.py` calls `write` before each build; the pages are not committed. griffe reads the source and parses the docstrings.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, cast

import griffe

ROOT = Path(__file__).resolve().parent.parent
LONGEST_LINE = 90
LINE_ANCHOR = "__codelineno-0-"
Kind = griffe.ParameterKind
STARS = {Kind.var_positional: "*", Kind.var_keyword: "**"}
SECTIONS = {
    "parameters": "Args",
    "attributes": "Attributes",
    "raises": "Raises",
    "returns": "Returns",
    "yields": "Yields",
}


class Page(NamedTuple):
    """One page: the module from which users import, and which names of it; none given: its `__all__`."""

    title: str
    intro: str
    module: str
    names: tuple[str, ...] = ()


CONFIGS = (
    "BuildConfig RuntimeConfig Settings SafetyConfig LLMConfig ProviderConfig Budget GateConfig RuntimeSettings "
    "ServeConfig NatsConfig"
)
ERRORS = (
    "UsageError BuildError EditError NegotiationError ModelError ArtifactError RunError PowerError BackpressureError "
    "DeadlockError RequestTimeoutError DeployError SeveralErrors"
)
PROPOSALS = (
    "Proposal CodeChange SchemaChange ImpactAssessment ProposalEvaluation Counterexample GateReport RungResult CommitRecord "
    "Negotiations"
)
PAGES = {
    "agents": Page("Agents and graphs", "What agent classes and the programs that start them import.", "graphbus_core"),
    "bus": Page("The bus", "A bus without a project.", "graphbus_core.bus"),
    "testing": Page("Testing", "See [Testing](../testing.md).", "graphbus_core.testing"),
    "middleware": Page("Middleware", "See [Middleware](../middleware.md).", "graphbus_core.middleware", ("Handling",)),
    "build": Page("Build", "Build a project from Python.", "graphbus_core.build", ("run_build_pipeline",)),
    "runtime": Page(
        "Run",
        "Run built artifacts from Python.",
        "graphbus_core.runtime",
        ("run_runtime_pipeline", "RuntimeResult"),
    ),
    "config": Page(
        "Configuration",
        "The keys of `[tool.graphbus]` as classes.",
        "graphbus_core.model.config",
        tuple(CONFIGS.split()),
    ),
    "artifacts": Page(
        "Artifacts", "What a build writes and a run reads.", "graphbus_core.store", ("BuildArtifacts", "load")
    ),
    "proposals": Page(
        "Proposals and votes",
        "The record of a negotiation, as `negotiations.json` holds it.",
        "graphbus_core.model.proposals",
        tuple(PROPOSALS.split()),
    ),
    "negotiation": Page(
        "Negotiation by hand",
        "An engine that a program feeds, and agents that are bound to it.",
        "graphbus_core.negotiation.seed_names",
        ("NegotiationEngine", "LLMAgent", "AgentMemory"),
    ),
    "models": Page(
        "Model clients", "See [Models](../models.md).", "graphbus_core.llm.client", ("LLMClient", "ScriptedClient")
    ),
    "errors": Page("Exceptions", "See [Error codes](../errors.md).", "graphbus_core.errors", tuple(ERRORS.split())),
}


def write(folder: Path) -> None:
    """Replace the folder by an index, one page for each module, and one for each source file that these link to."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    sources: set[Path] = set()
    index = ["# API reference", "", "The names that projects import. All others may change in any version."]
    for name, page in PAGES.items():
        documented = list(objects(page))
        listed = [
            one for each in documented for one in (each, *(members(each) if isinstance(each, griffe.Class) else ()))
        ]
        sources |= {each.filepath for each in listed if isinstance(each.filepath, Path)}
        (folder / f"{name}.md").write_text(page_text(page, documented), encoding="utf-8")
        index += ["", f"## [{page.title}]({name}.md)", "", f"`from {page.module} import ...`"]
        index += ["", "| name | what it is |", "|---|---|"]
        index += [f"| [`{each.name}`]({name}.md#{each.name}) | {first_sentence(each)} |" for each in documented]
    (folder / "index.md").write_text("\n".join(index) + "\n", encoding="utf-8")
    for source in sources:
        (folder / source_page(source)).write_text(listing(source), encoding="utf-8")


def objects(page: Page) -> Iterator[griffe.Object]:
    """What the names of a page stand for, where they are defined."""
    module = import_module(page.module)
    for name in page.names or module.__all__:
        value = getattr(module, name)
        yield package_tree()[f"{value.__module__}.{value.__qualname__}".removeprefix("graphbus_core.")]


@cache
def package_tree() -> griffe.Module:
    """The package as griffe reads it."""
    return cast("griffe.Module", griffe.load("graphbus_core", search_paths=[str(ROOT / "src")]))


def page_text(page: Page, documented: list[griffe.Object]) -> str:
    """All entries of one page."""
    parts = [f"# {page.title}", page.intro, f"`from {page.module} import ...`"]
    for each in documented:
        parts += entry(each, "##", "")
        if isinstance(each, griffe.Class):
            for member in members(each):
                parts += entry(member, "###", f"{each.name}.")
    return "\n\n".join(parts) + "\n"


def members(cls: griffe.Class) -> Iterator[griffe.Object]:
    """The public methods and properties that have a docstring, with those of bases that have no entry of their own."""
    documented = {name for page in PAGES.values() for name in page.names or import_module(page.module).__all__}
    bases = [base for base in cls.mro() if base.name not in documented]
    found = {name: member for each in reversed([cls, *bases]) for name, member in each.members.items()}
    for name, member in found.items():
        if not name.startswith("_") and isinstance(member, griffe.Object) and member.docstring:
            yield member


def entry(each: griffe.Object, heading: str, owner: str) -> Iterator[str]:
    """One name: signature, link to its source, and docstring."""
    yield f"{heading} {each.name} {{ #{owner}{each.name} }}"
    yield f"``` {{ .python .no-copy }}\n{signature(each)}\n```"
    assert isinstance(each.filepath, Path)
    yield f"[source]({source_page(each.filepath)}#{LINE_ANCHOR}{each.lineno})"
    for section in each.docstring.parse("google") if each.docstring else []:
        yield from section_text(section)


def signature(each: griffe.Object) -> str:
    """A definition in one line, or with one parameter on each line when it is long."""
    if isinstance(each, griffe.Attribute):
        return f"{each.name}: {each.annotation}"
    is_async = "async " if "async" in each.labels else ""
    result = f" -> {each.returns}" if isinstance(each, griffe.Function) and each.returns else ""
    given = parameters(each)
    opening = f"class {each.name}" if isinstance(each, griffe.Class) else f"{is_async}def {each.name}"
    if isinstance(each, griffe.Class) and not given:
        return opening
    line = f"{opening}({', '.join(given)}){result}"
    if len(line) <= LONGEST_LINE:
        return line
    return f"{opening}(\n    " + ",\n    ".join(given) + f",\n){result}"


def parameters(each: griffe.Object) -> list[str]:
    """What a function, a constructor or a struct takes, as it is written in a definition."""
    if isinstance(each, griffe.Class) and "__init__" not in each.members:
        return [written(field.name, field) for field in fields(each)]
    function = cast("griffe.Function", each["__init__"] if isinstance(each, griffe.Class) else each)
    found: list[str] = []
    is_positional_only = False
    for parameter in function.parameters:
        if is_positional_only and parameter.kind is not Kind.positional_only:
            found.append("/")
        is_positional_only = parameter.kind is Kind.positional_only
        if parameter.kind is Kind.keyword_only and not any(one.startswith("*") for one in found):
            found.append("*")
        if parameter.name not in ("self", "cls"):
            found.append(written(STARS.get(parameter.kind, "") + parameter.name, parameter))
    return [*found, "/"] if found and is_positional_only else found


def fields(cls: griffe.Class) -> Iterator[griffe.Attribute]:
    """The fields of a struct, in the order in which its constructor takes them."""
    for each in cls.members.values():
        if not isinstance(each, griffe.Attribute) or not each.annotation or each.name.startswith("_"):
            continue
        if "property" not in each.labels and "ClassVar" not in str(each.annotation):
            yield each


def written(name: str, each: griffe.Parameter | griffe.Attribute) -> str:
    """One parameter or field."""
    default = each.value if isinstance(each, griffe.Attribute) else None if name.startswith("*") else each.default
    if not each.annotation:
        return name if default is None else f"{name}={default}"
    return f"{name}: {each.annotation}" if default is None else f"{name}: {each.annotation} = {default}"


def section_text(section: griffe.DocstringSection) -> Iterator[str]:
    """One part of a docstring: text as it is, lists of names as a list."""
    if section.kind is griffe.DocstringSectionKind.text:
        yield without_source(section.value)
    elif section.kind is griffe.DocstringSectionKind.admonition:
        yield f"**{section.title}** {section.value.description}" if section.title != "Source" else ""
    elif section.kind is griffe.DocstringSectionKind.examples:
        yield "\n\n".join(text for _, text in section.value)
    else:
        yield f"**{SECTIONS[section.kind.value]}**"
        yield "\n".join(f"- {item_text(item)}" for item in section.value)


def item_text(item: griffe.DocstringElement) -> str:
    """`name`: description, on one line."""
    name = getattr(item, "name", "") or str(item.annotation or "")
    text = " ".join(without_source(item.description).split())
    return f"`{name}`: {text}" if name else text


def without_source(text: str) -> str:
    """A text without the note from which document a rule comes."""
    return re.sub(r" ?\(?Source: [^\n]*", "", text).strip()


def first_sentence(each: griffe.Object) -> str:
    """What a name stands for, for a table."""
    paragraph = " ".join((each.docstring.value if each.docstring else "").partition("\n\n")[0].split())
    return without_source(re.split(r"(?<=[.]) ", paragraph)[0]).replace("|", "\\|")


def source_page(source: Path) -> str:
    """The name of the page that lists a source file."""
    parts = source.relative_to(ROOT / "src" / "graphbus_core").with_suffix("").parts
    return f"source-{'-'.join(parts)}.md"


def listing(source: Path) -> str:
    """A page with a source file and its line numbers, which no search finds."""
    name = source.relative_to(ROOT / "src").as_posix()
    code = source.read_text(encoding="utf-8")
    return f'---\nsearch:\n  exclude: true\n---\n\n# `{name}`\n\n````` {{ .python linenums="1" }}\n{code}`````\n'
