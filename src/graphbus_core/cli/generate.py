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
from graphbus_core.errors.system import advise_on, reason_of
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.config import BuildConfig
from graphbus_core.model.topics import is_topic, is_topic_or_pattern
from graphbus_core.settings import PROJECT_FILE, find_root, resolve_build
from graphbus_core.store.folders import Folder

_CLASS_NAME = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")
_TAKEN_NAMES = frozenset({"Event", "GraphBusNode"})


class _NewAgent(NamedTuple):
    """The agent to generate: its class name, and the topics and agents of the options, each once."""

    name: str
    subscribes: tuple[str, ...] = ()
    publishes: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()


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
    "--subscribes", "subscribes", multiple=True, metavar="TOPIC", help="A topic that it subscribes to; may be repeated."
)
@click.option(
    "--publishes", "publishes", multiple=True, metavar="TOPIC", help="A topic that it publishes; may be repeated."
)
@click.option(
    "--depends-on", "depends_on", multiple=True, metavar="AGENT", help="An agent that it needs; may be repeated."
)
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
    new_agent = _NewAgent(name, **{kind: tuple(dict.fromkeys(given)) for kind, given in topics.items()})
    project = _read_project(folder)
    folder = folder or _choose_folder(project)
    raise_all(_find_errors(new_agent, project))
    files = _write_new(_render_files(new_agent, folder, project))
    if as_json:
        console.emit_json({"agent": new_agent.name, "files": files})
        return
    for path in files:
        console.print_line(f"{console.style('✓', 'good')} Wrote {path}")
    console.print_note(f"Next: graphbus check {shlex.quote(str(folder))}")


def _find_errors(new_agent: _NewAgent, project: Project) -> Iterator[UsageError]:
    """Yield an error for each name that is invalid, taken or unknown, each invalid topic, and topics with equal method names."""
    known = {definition.name: definition for definition in project.definitions}
    reason = _fault_of_class_name(new_agent.name)
    if new_agent.name in known:
        place = known[new_agent.name].name_span.place
        reason = f"an agent of this name already exists at {place.path}:{place.line}"
    if reason:
        yield UsageError("GBE114", name=new_agent.name, reason=reason)
    bad = [("--subscribes", topic) for topic in new_agent.subscribes if not is_topic_or_pattern(topic)]
    bad += [("--publishes", topic) for topic in new_agent.publishes if not is_topic(topic)]
    yield from (UsageError("GBE115", topic=topic, option=option) for option, topic in dict.fromkeys(bad))
    for topics in (new_agent.subscribes, new_agent.publishes):
        named = {_to_snake_case(topic): topic for topic in topics}
        for topic in topics:
            if named[_to_snake_case(topic)] != topic:
                yield UsageError("GBE116", one=topic, other=named[_to_snake_case(topic)], method=_to_snake_case(topic))
    for name in new_agent.depends_on:
        if name not in known:
            yield UsageError("GBE117", name=name, suggestion=did_you_mean(name, known))


def _fault_of_class_name(name: str) -> str:
    """Return why this cannot be the class name of an agent; empty if it can."""
    file = _to_snake_case(name)
    if name in _TAKEN_NAMES or keyword.iskeyword(name):
        return "the name is reserved"
    if file.startswith("test_") or file.endswith("_test") or file in {"test", "tests", "conftest"}:
        return f"its file, {file}.py, would be treated as a test"
    if keyword.iskeyword(file):
        return f"its file, {file}.py, could not be imported"
    return "" if _CLASS_NAME.fullmatch(name) else "it is not a class name in CamelCase"


def _choose_folder(project: Project) -> Path:
    """Return the folder for the agent: `agents`, otherwise the folder of the other agents.

    Raises:
        UsageError: GBE162, the other agents are in several folders.
    """
    usual = Path("agents")
    if usual.is_dir():
        return usual
    root = os.path.relpath(project.config.root)
    used = sorted({os.path.dirname(definition.path) for definition in project.definitions}) or [str(usual)]
    if len(used) > 1:
        raise UsageError("GBE162", folders=", ".join(each or "." for each in used), first=used[0] or ".")
    return Path(root, used[0])


def _read_project(folder: Path | None) -> Project:
    """Read the project that the folder belongs to, by default the working directory; without a pyproject.toml, the folder.

    Raises:
        UsageError: GBE101, there is no such folder; GBE130, it is a file.
    """
    if folder and not folder.exists():
        raise UsageError("GBE101", path=str(folder))
    if folder and not folder.is_dir():
        reason = "it is a file, not a folder"
        raise UsageError("GBE130", option="--path", name=folder, reason=reason, example=f"--path {folder.parent}")
    folder = folder or Path()
    root = find_root([folder])
    path = root if (root / PROJECT_FILE).is_file() else folder
    return Project.read(resolve_build(BuildConfig(paths=(str(path),))))


def _render_files(new_agent: _NewAgent, folder: Path, project: Project) -> dict[Path, str]:
    """Return path -> text of the files to write: the agent in the folder, its test in `tests` of the project."""
    payloads = {topic: _known_payload(topic, project.definitions) for topic in new_agent.publishes}
    root = Path(project.config.root)
    file = f"{_to_snake_case(new_agent.name)}.py"
    relative = (folder.resolve() / file).relative_to(root).as_posix()
    module = module_name(relative, find_import_root(str(root), relative.rpartition("/")[0]))
    test = Path(os.path.relpath(root / "tests" / f"test_{file}"))
    return {folder / file: _agent_source(new_agent, payloads), test: _test_source(new_agent, payloads, module)}


def _known_payload(topic: str, definitions: Iterable[AgentDefinition]) -> _Payload:
    """Return the payload that other agents publish on a topic, as field -> type, or a placeholder if there is none.

    A type that needs an import becomes `str`.
    """
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
        UsageError: GBE118 for each file that exists already; GBE113, a file cannot be written.
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
        where, advice = Place(str(path)), advise_on(reason, path)
        raise UsageError("GBE113", where=where, reason=reason_of(reason), advice=advice) from reason
    return [str(path) for path in files]


# --- the text of a new agent and of its test ---------------------------------------------------

_Payload = Mapping[str, str]
"""Field -> the name of its type."""

_EXAMPLES = {"bool": "True", "int": "1", "float": "1.5", "str": '"text"', "list": "[]", "dict": "{}"}
"""The types that a new agent may use without an import, each with an example."""


def _to_snake_case(name: str) -> str:
    """Convert a class name or a topic to snake case: `HTTPGateway` -> `http_gateway`, `/Order/*` -> `order_any`."""
    wildcards = {"*": "any", "**": "all"}
    segments = [wildcards.get(segment, segment) for segment in name.split("/") if segment]
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", "_".join(segments))
    return re.sub(r"[^A-Za-z0-9]+", "_", words).strip("_").lower()


def _agent_source(new_agent: _NewAgent, payloads: Mapping[str, _Payload]) -> str:
    """Return the source of the agent: a class with a prompt and a method for each topic."""
    imports = ["Event"] * bool(new_agent.subscribes) + ["GraphBusNode"] + ["depends_on"] * bool(new_agent.depends_on)
    imports += ["schema_method"] * bool(new_agent.publishes) + ["subscribe"] * bool(new_agent.subscribes)
    needed = ", ".join(f'"{name}"' for name in new_agent.depends_on)
    decorator = f"@depends_on({needed})\n" if needed else ""
    opening = f'''"""{new_agent.name}: describe its purpose in one line."""

from __future__ import annotations

from graphbus_core import {", ".join(imports)}


{decorator}class {new_agent.name}(GraphBusNode):
    """Describe here what it does and what others can rely on."""

    SYSTEM_PROMPT = """
    I am {new_agent.name}. Describe here what I am responsible for, what I need from other agents
    and what I protect in a negotiation.
    """
'''
    return "\n".join(
        [opening, *map(_handler_source, new_agent.subscribes), *(_publisher_source(*each) for each in payloads.items())]
    )


def _handler_source(topic: str) -> str:
    return f'''    @subscribe("{topic}")
    def on_{_to_snake_case(topic)}(self, event: Event) -> None:
        """Handle {topic}."""
        self.log(f"{{event.topic}}: {{dict(event)}}")
'''


def _publisher_source(topic: str, payload: _Payload) -> str:
    """Return the source of a method that publishes this payload on the topic."""
    schema = ", ".join(f'"{name}": {kind}' for name, kind in payload.items())
    parameters = "".join(f", {name}: {kind}" for name, kind in payload.items())
    sent = ", ".join(f'"{name}": {name}' for name in payload)
    return f'''    @schema_method(input_schema={{{schema}}}, output_schema={{"announced": bool}})
    def announce_{_to_snake_case(topic)}(self{parameters}) -> dict[str, bool]:
        """Publish on {topic}."""
        self.publish("{topic}", {{{sent}}})
        return {{"announced": True}}
'''


def _test_source(new_agent: _NewAgent, payloads: Mapping[str, _Payload], module: str) -> str:
    """Return the source of a test that runs only this agent; the test imports it from `module`."""
    opening = f'''"""{new_agent.name} on a bus of its own."""

from __future__ import annotations

from graphbus_core.testing import run_graph

from {module} import {new_agent.name}
'''
    steps: dict[str, tuple[str, ...]] = {}
    for topic in new_agent.subscribes:
        sent = topic.replace("**", "Something").replace("*", "Something")
        steps[f"hears_of_{_to_snake_case(topic)}"] = (
            f'graph.publish("{sent}", {{}})',
            f'graph.assert_delivered_to("{new_agent.name}", "{sent}")',
        )
    for topic, payload in payloads.items():
        arguments = "".join(f", {name}={_EXAMPLES[kind]}" for name, kind in payload.items())
        steps[f"publishes_{_to_snake_case(topic)}"] = (
            f'graph.call("{new_agent.name}", "announce_{_to_snake_case(topic)}"{arguments})',
            f'graph.assert_published("{topic}")',
        )
    steps = steps or {"starts": (f'assert isinstance(graph.node("{new_agent.name}"), {new_agent.name})',)}
    return "\n\n".join(
        [opening, *(_test_function_source(new_agent.name, name_end, lines) for name_end, lines in steps.items())]
    )


def _test_function_source(agent: str, name_end: str, lines: tuple[str, ...]) -> str:
    body = "".join(f"        {line}\n" for line in lines)
    return f"def test_it_{name_end}():\n    with run_graph({agent}) as graph:\n{body}"
