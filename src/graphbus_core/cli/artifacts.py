"""Commands on the artifacts of a build: `graphbus inspect`, `validate` and `migrate`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from graphbus_core import store
from graphbus_core.cli import console
from graphbus_core.cli.console import pluralize, sanitize, style
from graphbus_core.errors import ArtifactError, Place, did_you_mean, raise_all
from graphbus_core.model.agent import AgentDefinition, MethodSpec, Publication, Subscription
from graphbus_core.store import BuildArtifacts, migration
from graphbus_core.store.migration import find_artifact_folder


@click.command("validate", short_help="Verify that artifacts are intact and match the sources.")
@click.argument("artifacts", metavar="[ARTIFACTS]", default=".graphbus")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def validate(*, artifacts: str, as_json: bool) -> int:
    """Verify the artifacts in the folder ARTIFACTS (.graphbus by default).

    Each artifact must have the form and the digest that the manifest records, and each source file must be unchanged
    since the build. All problems are shown, not only the first.

    `graphbus check` finds mistakes in source code; this command says whether a build is intact and up to date.

    Exit status: 0 everything fits; 6 a problem was found.

    \b
    Examples:
      graphbus validate
      graphbus validate .graphbus/ --json
    """
    folder = Path(artifacts)
    problems = store.find_problems(folder)
    if as_json:
        described = [console.error_as_json(problem) for problem in problems]
        console.emit_json({"artifacts": artifacts, "is_valid": not problems, "problems": described})
        return problems[0].exit_status if problems else 0
    raise_all(problems)
    manifest = store.load_manifest(folder)
    sources = pluralize(len(manifest.sources), "source file")
    result = f"{len(manifest.artifacts)} artifacts are intact and match {sources}."
    console.print_line(f"{style('✓', 'good')} {sanitize(artifacts)}: {result}")
    return 0


@click.command("migrate", short_help="Convert artifacts of an older GraphBus.")
@click.argument("artifacts", metavar="[ARTIFACTS]", default=".graphbus")
@click.option("--dry-run", is_flag=True, help="Show which files would change; write nothing.")
@click.option("--diff", "is_diff", is_flag=True, help="Show what would change, line by line; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def migrate(*, artifacts: str, dry_run: bool, is_diff: bool, as_json: bool) -> None:
    """Convert artifacts that an older GraphBus wrote to the present format. ARTIFACTS is their folder, or the project that
    contains it (.graphbus by default).

    Either all files are replaced or none. What the old format does not contain is read from the source files, which must
    be unchanged since the build. Agents, negotiations and their digests stay the same, so that the lock remains valid.

    Exit status: 0 done, also when nothing is old; 6 the artifacts are missing or damaged, or the sources have changed.

    \b
    Examples:
      graphbus migrate
      graphbus migrate --diff
      graphbus migrate build/.graphbus --json
    """
    from graphbus_core.compiler.project import learn_imports

    folder = find_artifact_folder(artifacts)
    is_dry = dry_run or is_diff
    done = migration.migrate(folder, lambda known: learn_imports(folder, known), dry_run=is_dry)
    document = {
        "artifacts": str(folder),
        "dry_run": is_dry,
        "from": done.before,
        "to": done.after,
        "changed": sorted(done.changed),
        "imports": done.learned.imports,
        "third_party": done.learned.third_party,
    }
    console.print_result(document, _migration_lines(str(folder), done, is_dry=is_dry, is_diff=is_diff), as_json=as_json)


def _migration_lines(artifacts: str, done: migration.MigrationResult, *, is_dry: bool, is_diff: bool) -> Iterator[str]:
    """Yield the report on a migration: the diff if wanted, what was (or would be) converted, and what the agents import."""
    from difflib import unified_diff

    if done.before == done.after:
        yield f"{style('✓', 'good')} {sanitize(artifacts)} has format {done.after} already: nothing to do."
        return
    for name, sides in done.changed.items() if is_diff else ():
        before, after = (side.decode().splitlines() for side in sides)
        changes = unified_diff(before, after, f"a/{artifacts}/{name}", f"b/{artifacts}/{name}", lineterm="")
        yield from console.diff_lines("\n".join(changes))
    verb = "Would convert" if is_dry else f"{style('✓', 'good')} Converted"
    yield f"{verb} {sanitize(artifacts)} from format {done.before} to {done.after}: {', '.join(done.changed)}"
    files, packages = len(done.learned.imports), done.learned.third_party
    if packages or files:
        others = ", ".join(map(sanitize, packages)) or "no third-party package"
        yield f"  the agents import {pluralize(files, 'file')} of the project, and {others}"


@click.command("inspect", short_help="Show agents, topics and the graph of a build.")
@click.argument("artifacts", metavar="[ARTIFACTS]", default=".graphbus")
@click.option("--agent", default="", metavar="AGENT", help="Show only this agent, with its whole contract.")
@click.option("--format", "form", type=click.Choice(["tree", "mermaid"]), default="tree", help="How to draw the graph.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def inspect(*, artifacts: str, agent: str, form: str, as_json: bool) -> None:
    """Show the graph in the folder ARTIFACTS (.graphbus by default): agents, topics and the edges between them.

    `graphbus inspect-negotiation` shows a negotiation instead: what was proposed, decided and written.

    Exit status: 0 done; 6 there are no artifacts, or no such agent in them.

    \b
    Examples:
      graphbus inspect .graphbus/
      graphbus inspect --agent OrderProcessor
      graphbus inspect .graphbus/ --format mermaid > graph.mmd
    """
    folder = Path(artifacts)
    found = store.load(folder)
    chosen = [_find_agent(found, agent, folder)] if agent else list(found.agents.agents)
    if as_json:
        console.emit_json(_as_document(found, chosen))
    elif form == "mermaid":
        console.print_line(console.Verbatim("\n".join(_mermaid(found, chosen))))
    elif agent:
        console.print_tree(_title(chosen[0]), _contract_lines(chosen[0], has_detail=True))
    else:
        _print_overview(found)


def _find_agent(artifacts: BuildArtifacts, name: str, folder: Path) -> AgentDefinition:
    """Return the agent with this name, or raise GBE511 with the names that exist."""
    names = artifacts.graph.nodes
    found = next((agent for agent in artifacts.agents.agents if agent.name == name), None)
    if found is None:
        suggestion, known = did_you_mean(name, names), ", ".join(names)
        raise ArtifactError("GBE511", where=Place(str(folder)), name=name, suggestion=suggestion, known=known)
    return found


def _as_document(artifacts: BuildArtifacts, chosen: list[AgentDefinition]) -> dict[str, object]:
    """Return the JSON document of the chosen agents, with the topics and edges that concern them."""
    names = {agent.name for agent in chosen}
    is_whole = len(names) == len(artifacts.graph.nodes)
    edges = [edge for edge in artifacts.graph.edges if is_whole or {edge.source, edge.target} & names]
    topics = [topic for topic in artifacts.topics.topics if is_whole or {*topic.publishers, *topic.subscribers} & names]
    return {
        "agents": chosen,
        "topics": topics,
        "edges": edges,
        "activation_order": [name for name in artifacts.graph.activation_order if name in names],
        "topic_cycles": artifacts.graph.topic_cycles,
        "manifest": artifacts.manifest,
    }


# --- as text ------------------------------------------------------------------------------


def _print_overview(artifacts: BuildArtifacts) -> None:
    """Print the numbers of agents, topics and subscriptions, the tree of agents, the table of topics, and cycles of topics."""
    agents = artifacts.agents.agents
    subscriptions = sum(len(agent.subscriptions) for agent in agents)
    counts = {"agent": len(agents), "topic": len(artifacts.topics.topics), "subscription": subscriptions}
    console.print_line(", ".join(pluralize(number, noun) for noun, number in counts.items()))
    console.print_line()
    console.print_tree(style("Agents", "strong"), {_title(agent): _contract_lines(agent) for agent in agents})
    console.print_line()
    if artifacts.topics.topics:
        console.print_table(["Topic", "from", "to", "payload"], _topic_rows(artifacts))
    for cycle in artifacts.graph.topic_cycles:
        console.print_line(style(f"Events can go round in a cycle: {', '.join(cycle)}.", "warn"))


def _title(agent: AgentDefinition) -> str:
    """Return the name and the place of an agent, and whether it is an arbiter."""
    role = style("  (arbiter)", "accent") if agent.is_arbiter else ""
    return f"{style(agent.name, 'name')}{role}  {style(sanitize(f'{agent.path}:{agent.span.line}'), 'dim')}"


def _contract_lines(agent: AgentDefinition, *, has_detail: bool = False) -> dict[str, Any]:
    """Return the branches of an agent in the tree: a line for each part of its contract -> no further branches.

    With `has_detail` the lines also show schemas, payloads and the fields that are read.
    """
    listed = [
        *(f"needs {sanitize(dependency.name)}" for dependency in agent.dependencies),
        *(f"offers {sanitize(_method_line(method, has_detail))}" for method in agent.methods if method.has_schema),
        *(f"hears {sanitize(_subscription_line(subscription, has_detail))}" for subscription in agent.subscriptions),
        *dict.fromkeys(
            f"{'asks' if publication.is_request else 'says'} {sanitize(_publication_line(publication, has_detail))}"
            for publication in agent.publications
        ),
        *dict.fromkeys(f"calls {sanitize(call.agent or '?')}.{sanitize(call.method or '?')}" for call in agent.calls),
    ]
    return {line: {} for line in listed}


def _method_line(method: MethodSpec, has_detail: bool) -> str:
    """Return the name of a method, with detail also its schemas `input → output`; `?` stands for an unknown schema."""
    if not has_detail:
        return method.name
    inputs = "?" if method.input_schema is None else str(method.input_schema)
    return f"{method.name} {inputs} → {'?' if method.output_schema is None else method.output_schema}"


def _subscription_line(subscription: Subscription, has_detail: bool) -> str:
    """Return `topic → method`; with detail also the keys that the method reads from the payload, then its declared fields.

    `?` marks an optional key, and a topic that is computed.
    """
    line = f"{subscription.topic or '? (computed)'} → {subscription.method}"
    if not has_detail:
        return line
    keys = [f"{read.key}{'?' if read.is_optional else ''}" for read in subscription.reads]
    keys += [field.name for field in subscription.fields]
    return f"{line}  reads {', '.join(dict.fromkeys(keys))}" if keys else line


def _publication_line(publication: Publication, has_detail: bool) -> str:
    """Return the topic, with detail also the payload; `?` stands for an unknown payload."""
    topic = publication.topic or "? (computed)"
    return f"{topic} {publication.payload if publication.payload is not None else '?'}" if has_detail else topic


def _topic_rows(artifacts: BuildArtifacts) -> Iterator[list[str]]:
    """Yield the cells of each topic: name, publishers, subscribers and schema."""
    for topic in artifacts.topics.topics:
        outside = style("(outside)", "dim") if topic.is_external else style("nobody", "warn")
        shown = [sanitize(", ".join(names)) if names else outside for names in (topic.publishers, topic.subscribers)]
        yield [style(sanitize(topic.name), "name"), *shown, sanitize(str(topic.schema)) if topic.schema else ""]


# --- as mermaid ---------------------------------------------------------------------------


def _mermaid(artifacts: BuildArtifacts, chosen: list[AgentDefinition]) -> Iterator[str]:
    """Yield a flowchart: agents as boxes, arbiters as hexagons, topics as rounded boxes between publisher and subscriber."""
    names = {agent.name for agent in chosen}
    edges = [edge for edge in artifacts.graph.edges if edge.kind != "topic" and {edge.source, edge.target} & names]
    topics = [topic for topic in artifacts.topics.topics if {*topic.publishers, *topic.subscribers} & names]
    topic_ends = ({*topic.publishers, *topic.subscribers} for topic in topics)
    shown = names.union(*({edge.source, edge.target} for edge in edges), *topic_ends)
    ids = {name: f"a{number}" for number, name in enumerate(sorted(shown))}
    arbiters = {agent.name for agent in artifacts.agents.agents if agent.is_arbiter}
    yield "flowchart LR"
    for name, identity in ids.items():
        opening, closing = ("{{", "}}") if name in arbiters else ("[", "]")
        yield f'  {identity}{opening}"{name}"{closing}'
    for number, topic in enumerate(topics):
        yield f'  t{number}(["{topic.name}"])'
        yield from (f"  {ids[name]} -.-> t{number}" for name in topic.publishers)
        yield from (f"  t{number} -.-> {ids[name]}" for name in topic.subscribers)
    for edge in edges:  # its source is the agent that the target calls or needs
        label = f"calls {edge.label}" if edge.kind == "call" else "is needed by"
        ends = (edge.target, edge.source) if edge.kind == "call" else (edge.source, edge.target)
        yield f'  {ids[ends[0]]} -->|"{label}"| {ids[ends[1]]}'
