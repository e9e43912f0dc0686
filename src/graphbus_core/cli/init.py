"""`graphbus init`: create a project from a template, completely or not at all. Existing files are never overwritten."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from string import Template

import click

from graphbus_core.cli import console
from graphbus_core.errors import Place, UsageError
from graphbus_core.errors.system import advise_on, reason_of

TEMPLATES = Path(__file__).parent / "templates"
_SUFFIX = ".tmpl"

_ORDER = '\'{"order_id": "1001", "items": [{"sku": "mug", "price": 12.5, "qty": 2}]}\''
_PROJECT_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_NAMED_FILES = frozenset({"README.md", "pyproject.toml"})
"""The files into which the name of the project is written; all others are the same in every project."""

_TAKEN_NAMES = frozenset({"graphbus", "graphbus-core"})  # distributions of GraphBus itself


NEXT_STEPS: dict[str, tuple[tuple[str, str], ...]] = {
    "shop": (
        ("graphbus check agents/", "find mistakes in the agents and between them"),
        ("graphbus build agents/ --enable-agents", "the agents negotiate and fix them"),
        ("python -m pytest", "red before, green after"),
        (f"graphbus run .graphbus/ --publish /Order/Placed {_ORDER}", ""),
    ),
    "hello": (
        ("graphbus build hello_graphbus", "the graph and its artifacts"),
        ("graphbus run .graphbus/ --entrypoint hello_graphbus.main:run", "three agents say hello"),
    ),
    "news": (
        ("graphbus build news", "the graph and its artifacts"),
        ("graphbus run .graphbus/ --entrypoint news.main:run", "feeds become digest.md"),
    ),
    "blank": (
        ("graphbus generate agent HelloService", "the first agent and its test"),
        ("graphbus build agents/", "the graph and its artifacts"),
    ),
}
"""Template -> what to do next, command and purpose. Every template is a folder of `TEMPLATES` with the same name."""

_PYTEST = ("python -m pip install pytest", "needed for the tests, which verify each change of the agents")
"""The first step where pytest is missing: without it, the tests of the shop cannot verify any change."""


@click.command("init", short_help="Create a project from a template.")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--template", type=click.Choice(list(NEXT_STEPS)), default="shop", show_default=True, help="The template."
)
@click.option("--intent", default="", metavar="TEXT", help="A goal for the agents; written to pyproject.toml.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def init(folder: Path, template: str, intent: str, as_json: bool) -> None:
    """Create a project in FOLDER, which must be new or empty.

    The templates: `shop` (four agents with some mistakes for them to find), `hello` (the smallest graph that uses
    everything), `news` (turns feeds into a digest), `blank` (no agents yet).

    Exit status: 0 done; 2 FOLDER is not empty, or its name cannot be a project name.

    \b
    Examples:
      graphbus init my-shop
      graphbus init my-news --template news
      graphbus init my-bot --template blank --intent "typed payloads everywhere"
    """
    name = _project_name(folder)
    files = _render(template, name, intent)
    _write_project(folder, files)
    if as_json:
        console.emit_json({"project": name, "folder": str(folder), "template": template, "files": sorted(files)})
    else:
        _print_next_steps(name, folder, template, files)


def _project_name(folder: Path) -> str:
    """Return the name of the project that is created in this folder.

    Raises:
        UsageError: GBE111, a Python project cannot have this name.
    """
    name = folder.resolve().name
    if not _PROJECT_NAME.fullmatch(name):
        allowed = "letters, digits, '-', '_' and '.', at most 64 characters, with a letter or digit at both ends"
        raise UsageError("GBE111", name=name, reason=f"it may contain {allowed}")
    if re.sub(r"[-_.]+", "-", name).lower() in _TAKEN_NAMES:
        raise UsageError("GBE111", name=name, reason="GraphBus itself has this name")
    return name


def _render(template: str, name: str, intent: str) -> dict[str, str]:
    """Return the files of a new project: relative path -> text."""
    values = {"project_name": name, "intent": f"intent = {_toml_string(intent)}\n" if intent else ""}
    root = TEMPLATES / template
    files = {}
    for source in sorted(root.rglob(f"*{_SUFFIX}")):
        path, text = source.relative_to(root).as_posix().removesuffix(_SUFFIX), source.read_text("utf-8")
        files[path] = Template(text).safe_substitute(values) if path in _NAMED_FILES else text
    return files


def _toml_string(text: str) -> str:
    """Return a text as a TOML basic string, which differs from a JSON string only in the escape of DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _write_project(folder: Path, files: dict[str, str]) -> None:
    """Write all files or none: they are written to a temporary folder beside the new one and moved at the end.

    Raises:
        UsageError: GBE112, the folder is not empty; GBE113, it cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError("GBE112", where=Place(str(folder)))
    try:
        parent = folder.resolve().parent
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent, prefix=f".{folder.resolve().name}-") as scratch:
            project = Path(scratch, "project")
            for path, text in files.items():
                (project / path).parent.mkdir(parents=True, exist_ok=True)
                (project / path).write_text(text, encoding="utf-8", newline="\n")
            if not folder.exists():
                os.rename(project, folder)
                return
            for part in sorted(project.iterdir()):  # an empty folder that exists already is kept
                shutil.move(part, folder)
    except UnicodeError as error:
        reason, advice = "UTF-8 cannot encode the intent", "Remove the invalid characters from `--intent`."
        raise UsageError("GBE113", where=Place(str(folder)), reason=reason, advice=advice) from error
    except OSError as error:
        where, advice = Place(str(folder)), advise_on(error, folder)
        raise UsageError("GBE113", where=where, reason=reason_of(error), advice=advice) from error


def _print_next_steps(name: str, folder: Path, template: str, files: dict[str, str]) -> None:
    """Print the files that were created, and the next steps."""
    console.print_line(
        f"{console.style('✓', 'good')} Made {console.style(name, 'strong')} from the template {template}"
    )
    console.print_line()
    console.print_lines(f"    {console.style(str(folder / path), 'dim')}" for path in sorted(files))
    console.print_line()
    console.print_line("Next:")
    needs_pytest = template == "shop" and find_spec("pytest") is None
    steps = (_PYTEST, *NEXT_STEPS[template]) if needs_pytest else NEXT_STEPS[template]
    if folder.resolve() != Path.cwd():
        console.print_line(f"  cd {folder}")
    width = max(len(command) for command, purpose in steps if purpose)
    is_narrow = 0 < console.terminal_width() < max(width + len(purpose) + 6 for _, purpose in steps)
    for command, purpose in steps:
        note = console.style(f"# {purpose}", "dim")  # beside the command; on a narrow terminal above it
        if purpose and is_narrow:
            console.print_line(f"  {note}")
        console.print_lines(
            [f"  {command:{width}}  {note}"] if purpose and not is_narrow else console.command_lines(command, 2)
        )
