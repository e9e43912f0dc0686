"""`graphbus generate agent`: write a new agent and a test for it. Existing files are never changed."""

from __future__ import annotations

import keyword
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import click

from graphbus_core.cli import console
from graphbus_core.compiler.discover import find_import_root, module_name
from graphbus_core.compiler.project import Project
from graphbus_core.errors import Place, UsageError, did_you_mean, raise_all
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.config import BuildConfig
from graphbus_core.model.topics import is_topic, is_topic_or_pattern
from graphbus_core.settings import PROJECT_FILE, find_root, resolve_build
from graphbus_core.store.folders import Folder

_CLASS_NAME = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")
_TAKEN_NAMES = frozenset({"Event", "GraphBusNode"})


class _NewAgent(NamedTuple):
    """The agent that the command line asks for; each topic and name occurs once."""

    name: str
    heard: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()


@click.group("generate", short_help="Add an agent and its test to a project.")
def generate() -> None:
    """Add files to a project. Existing files are never overwritten.

    \b
    Examples:
      graphbus generate agent ShippingService --subscribes /Order/Created
    """


@generate.command("agent", short_help="Add an agent and its test.")
@click.argument("name")
@click.option(
    "--subscribes", "heard", multiple=True, metavar="TOPIC", help="A topic that it subscribes to; may be repeated."
)
@click.option("--publishes", "said", multiple=True, metavar="TOPIC", help="A topic that it publishes; may be repeated.")
@click.option("--depends-on", "needed", multiple=True, metavar="AGENT", help="An agent that it needs; may be repeated.")
@click.option(
    "--path",
    "folder",
    type=click.Path(path_type=Path),
    help="The folder to write to (`agents`, or the folder of the other agents).",
)
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def agent(*, name: str, folder: Path | None, as_json: bool, **topics: tuple[str, ...]) -> None:
    """Write a new agent, the class NAME, into a file of its own, and a test for it. The first agent of a project goes into
    the folder `agents`.

    If other agents already publish a topic, the new agent publishes it with the same fields.

    Exit status: 0 done; 2 the name or a topic is not valid, or a file exists; 3 the agents of the project cannot be
    read.

    \b
    Examples:
      graphbus generate agent ShippingService
      graphbus generate agent Shipping --subscribes /Order/Created
      graphbus generate agent Billing --depends-on OrderProcessor
    """
    wish = _NewAgent(name, **{kind: tuple(dict.fromkeys(given)) for kind, given in topics.items()})
    project = _read_whole(folder)
    folder = folder or _folder_of(project)
    raise_all(_refusals(wish, project))
    files = _write_new(_new_files(wish, folder, project))
    if as_json:
        console.emit_json({"agent": wish.name, "files": files})
        return
    for path in files:
        console.print_line(f"{console.style('✓', 'good')} Wrote {path}")
    console.print_note(f"Next: graphbus check {shlex.quote(str(folder))}")


def _refusals(wish: _NewAgent, project: Project) -> Iterator[UsageError]:
    """Yield an error for each name or topic that is not valid, or does not fit the existing agents."""
    known = {definition.name: definition for definition in project.definitions}
    reason = _why_no_class_name(wish.name)
    if wish.name in known:
        place = known[wish.name].name_span.place
        reason = f"an agent of this name already exists at {place.path}:{place.line}"
    if reason:
        yield UsageError("GBE114", name=wish.name, reason=reason)
    bad = [topic for topic in wish.heard if not is_topic_or_pattern(topic)]
    bad += [topic for topic in wish.said if not is_topic(topic)]
    yield from (UsageError("GBE115", topic=topic) for topic in dict.fromkeys(bad))
    for topics in (wish.heard, wish.said):
        named = {_snake(topic): topic for topic in topics}
        for topic in topics:
            if named[_snake(topic)] != topic:
                yield UsageError("GBE116", one=topic, other=named[_snake(topic)], method=_snake(topic))
    for name in wish.needed:
        if name not in known:
            yield UsageError("GBE117", name=name, suggestion=did_you_mean(name, known))


def _why_no_class_name(name: str) -> str:
    file = _snake(name)
    if name in _TAKEN_NAMES or keyword.iskeyword(name):
        return "the name is reserved"
    if file.startswith("test_") or file.endswith("_test") or file in {"test", "tests", "conftest"}:
        return f"its file, {file}.py, would be treated as a test"
    if keyword.iskeyword(file):
        return f"its file, {file}.py, could not be imported"
    return "" if _CLASS_NAME.fullmatch(name) else "it is not a class name in CamelCase"


def _folder_of(project: Project) -> Path:
    """Return the folder for the agent: `agents`, otherwise the folder of the other agents.

    Raises:
        UsageError: GBE162, they are in several.
    """
    usual = Path("agents")
    if usual.is_dir():
        return usual
    root = os.path.relpath(project.config.root)
    used = sorted({os.path.dirname(definition.path) for definition in project.definitions}) or [str(usual)]
    if len(used) > 1:
        raise UsageError("GBE162", folders=", ".join(each or "." for each in used), first=used[0] or ".")
    return Path(root, used[0])


def _read_whole(folder: Path | None) -> Project:
    """Read the project that the folder belongs to, by default the working directory; without a pyproject.toml, the folder.

    Raises:
        UsageError: There is no such folder.
    """
    if folder and not folder.is_dir():
        raise UsageError("GBE101", path=str(folder))
    folder = folder or Path()
    root = find_root([folder])
    path = root if (root / PROJECT_FILE).is_file() else folder
    return Project.read(resolve_build(BuildConfig(paths=(str(path),))))


def _new_files(wish: _NewAgent, folder: Path, project: Project) -> dict[Path, str]:
    """Return path -> text of the files to write: the agent in the folder, its test in `tests` of the project."""
    payloads = {topic: _payload_of(topic, project.definitions) for topic in wish.said}
    root = Path(project.config.root)
    file = f"{_snake(wish.name)}.py"
    relative = (folder.resolve() / file).relative_to(root).as_posix()
    module = module_name(relative, find_import_root(str(root), relative.rpartition("/")[0]))
    test = Path(os.path.relpath(root / "tests" / f"test_{file}"))
    return {folder / file: _agent_source(wish, payloads), test: _test_source(wish, payloads, module)}


def _payload_of(topic: str, definitions: Iterable[AgentDefinition]) -> _Payload:
    """Return the payload that other agents publish on a topic, or a placeholder: field -> built-in type."""
    sent: dict[str, str] = {}
    for definition in definitions:
        for publication in definition.publications:
            if publication.topic == topic and publication.payload:
                sent |= {field.name: field.type.kind for field in publication.payload.fields}
    usable = {name: kind for name, kind in sent.items() if name.isidentifier() and not keyword.iskeyword(name)}
    return {name: kind if kind in _EXAMPLES else "str" for name, kind in usable.items()} or {"text": "str"}


def _write_new(files: Mapping[Path, str]) -> list[str]:
    """Write all files or none, and return their paths.

    Raises:
        UsageError: One of them exists already, or cannot be written.
    """
    raise_all(UsageError("GBE118", where=Place(str(path))) for path in files if path.exists() or path.is_symlink())
    written: list[Path] = []
    try:
        for path, text in files.items():
            with Folder.at(path.absolute().parent, make=True) as folder:
                folder.create(path.name, text.encode())
            written.append(path)
    except OSError as reason:
        for done in written:
            done.unlink()
        raise UsageError("GBE113", where=Place(str(path)), reason=reason.strerror or str(reason)) from reason
    return [str(path) for path in files]


# --- the text of a new agent and of its test ---------------------------------------------------

_Payload = Mapping[str, str]
"""Field -> the name of its type."""

_EXAMPLES = {"bool": "True", "int": "1", "float": "1.5", "str": '"text"', "list": "[]", "dict": "{}"}
"""The types that a new agent may use without an import, each with an example."""


def _snake(name: str) -> str:
    """Convert a class name or a topic to snake case: `HTTPGateway` -> `http_gateway`, `/Order/*` -> `order_any`."""
    wildcards = {"*": "any", "**": "all"}
    segments = [wildcards.get(segment, segment) for segment in name.split("/") if segment]
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", "_".join(segments))
    return re.sub(r"[^A-Za-z0-9]+", "_", words).strip("_").lower()


def _agent_source(wish: _NewAgent, payloads: Mapping[str, _Payload]) -> str:
    """Return the source of the agent: a class with a prompt and a method for each topic."""
    imports = ["Event"] * bool(wish.heard) + ["GraphBusNode"] + ["depends_on"] * bool(wish.needed)
    imports += ["schema_method"] * bool(wish.said) + ["subscribe"] * bool(wish.heard)
    needed = ", ".join(f'"{name}"' for name in wish.needed)
    decorator = f"@depends_on({needed})\n" if needed else ""
    opening = f'''"""{wish.name}: say in one line what it is there for."""

from __future__ import annotations

from graphbus_core import {", ".join(imports)}


{decorator}class {wish.name}(GraphBusNode):
    """Say here what it does and what others can rely on."""

    SYSTEM_PROMPT = """
    I am {wish.name}. Say here what I am responsible for, what I need from other agents
    and what I look after in a negotiation.
    """
'''
    return "\n".join([opening, *map(_handler, wish.heard), *(_announcement(*each) for each in payloads.items())])


def _handler(topic: str) -> str:
    return f'''    @subscribe("{topic}")
    def on_{_snake(topic)}(self, event: Event) -> None:
        """Hear of {topic}."""
        self.log(f"{{event.topic}}: {{dict(event)}}")
'''


def _announcement(topic: str, payload: _Payload) -> str:
    schema = ", ".join(f'"{name}": {kind}' for name, kind in payload.items())
    parameters = "".join(f", {name}: {kind}" for name, kind in payload.items())
    sent = ", ".join(f'"{name}": {name}' for name in payload)
    return f'''    @schema_method(input_schema={{{schema}}}, output_schema={{"announced": bool}})
    def announce_{_snake(topic)}(self{parameters}) -> dict[str, bool]:
        """Publish on {topic}."""
        self.publish("{topic}", {{{sent}}})
        return {{"announced": True}}
'''


def _test_source(wish: _NewAgent, payloads: Mapping[str, _Payload], module: str) -> str:
    """Return the source of a test that runs the agent alone; `module` is where the agent is imported from."""
    opening = f'''"""{wish.name} on a bus of its own."""

from __future__ import annotations

from graphbus_core.testing import run_graph

from {module} import {wish.name}
'''
    steps: dict[str, tuple[str, ...]] = {}
    for topic in wish.heard:
        sent = topic.replace("**", "Something").replace("*", "Something")
        steps[f"hears_of_{_snake(topic)}"] = (
            f'graph.publish("{sent}", {{}})',
            f'graph.assert_delivered_to("{wish.name}", "{sent}")',
        )
    for topic, payload in payloads.items():
        arguments = "".join(f", {name}={_EXAMPLES[kind]}" for name, kind in payload.items())
        steps[f"publishes_{_snake(topic)}"] = (
            f'graph.call("{wish.name}", "announce_{_snake(topic)}"{arguments})',
            f'graph.assert_published("{topic}")',
        )
    steps = steps or {"starts": (f'assert isinstance(graph.node("{wish.name}"), {wish.name})',)}
    return "\n\n".join([opening, *(_test(wish.name, what, lines) for what, lines in steps.items())])


def _test(agent: str, what: str, lines: tuple[str, ...]) -> str:
    body = "".join(f"        {line}\n" for line in lines)
    return f"def test_it_{what}():\n    with run_graph({agent}) as graph:\n{body}"
