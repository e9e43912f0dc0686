"""`graphbus nats`: write the users of a NATS server for the artifacts of a build, and make the stream and the consumers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from graphbus_core.cli import console, shipping
from graphbus_core.cli.console import sanitize, style
from graphbus_core.cli.process_options import groups_option, ledger_option
from graphbus_core.cli.shipping import BuiltProject, read_project
from graphbus_core.deploy.nats import (
    ACCOUNTS,
    OPERATOR,
    computes_topics,
    generate_accounts,
    password_variable,
    user_of,
)
from graphbus_core.hosting.imports import require_packages, select_agents
from graphbus_core.ledger.attached import check_agents_on_nats, subscriptions_in
from graphbus_core.ledger.nats_names import parse_address
from graphbus_core.model.config import OUTSIDE

_ARTIFACTS = click.argument("artifacts", metavar="[ARTIFACTS]", default=".graphbus")
_LEDGER = ledger_option("nats://HOST:PORT/APP ($GRAPHBUS_LEDGER, or that of the settings).")


@click.group("nats", short_help="Prepare a NATS server as the ledger of a graph.")
def nats() -> None:
    """Prepare a NATS server as the ledger of a graph: its users, its stream and its consumers.

    \b
    Examples:
      graphbus nats generate --ledger nats://nats.example/shop
      GRAPHBUS_LEDGER="$OPERATOR_ADDRESS" graphbus nats deploy
    """


@nats.command("generate", short_help="Write the users of the server.")
@_ARTIFACTS
@_LEDGER
@groups_option(
    "One user for a process with these agents; may be repeated. By default each agent has a user of its own. "
    "`outside` among them allows events from outside, as with --serve.",
    shared=OUTSIDE,
)
@click.option("--output", "-o", default="nats", metavar="DIR", help="The folder to write to (nats).")
@shipping.writing_options
def generate(
    *, artifacts: str, ledger: str | None, groups: tuple[tuple[str, ...], ...], output: str, **given: Any
) -> None:
    """Write accounts.conf for the graph in ARTIFACTS, a folder (.graphbus by default): an account with one user per process.

    The user of an agent may do what its class does: get its own events, publish its topics, ask the agents that it asks.
    APP.outside may publish what no agent publishes. APP.operator may do everything in the account. The passwords come from the
    environment of the server. A file with other content is overwritten only with --force.

    Exit status: 0 written; 6 the artifacts are missing, damaged or outdated; 7 there is no such agent, or no address; 8 a
    name is refused, or a file exists already or, with --check, is out of date.

    \b
    Examples:
      graphbus nats generate --ledger nats://nats.example/shop
      graphbus nats generate --agents Checkout,outside --agents Payments
      graphbus nats generate --check
    """
    project = read_project(artifacts)
    app = parse_address(ledger or project.run.settings.ledger).app
    agents = [each for each in project.artifacts.agents.agents if not each.is_arbiter]
    select_agents(agents, [name for group in groups for name in group])
    chosen = groups or tuple((each.name,) for each in agents)
    shown = {"ledger": f"nats://HOST/{app}", "groups": tuple(map(",".join, groups))}
    command = shipping.command_line("graphbus nats generate", shown)
    partitions = project.run.settings.nats.partitions
    files = generate_accounts(app, agents, project.artifacts.topics.topics, chosen, command, partitions=partitions)
    write_options = shipping.WriteOptions(**given)
    states = shipping.write_files(Path(output), files, write_options)
    users = [user_of(app, names) for names in dict.fromkeys([(OPERATOR,), (OUTSIDE,), *chosen])]
    if write_options.as_json:
        passwords = {user: password_variable(user) for user in users}
        console.emit_json({"app": app, "output": output, "files": states, "users": passwords})
        return
    for line in _next_steps(project, app, users):
        console.print_note(sanitize(line))


def _next_steps(project: BuiltProject, app: str, users: Sequence[str]) -> Iterator[str]:
    """Yield the remaining steps for the user."""
    yield f'Write `accounts {{ include "{ACCOUNTS}" }}` into the configuration of the server.'
    yield f"Set in its environment: {', '.join(map(password_variable, users))}."
    yield f"Then make the stream: `graphbus nats deploy --ledger nats://{user_of(app, [OPERATOR])}:PASSWORD@HOST/{app}`."
    for agent in filter(computes_topics, project.artifacts.agents.agents):
        yield f"{agent.name} computes its topics, so it may publish none: declare them with @publishes."


@nats.command("deploy", short_help="Make the stream and the consumers.")
@_ARTIFACTS
@_LEDGER
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def deploy(*, artifacts: str, ledger: str | None, as_json: bool) -> None:
    """Make the stream and the consumers of all agents in ARTIFACTS, a folder (.graphbus by default), or change them.

    Needs a user who may do so, such as APP.operator; the users of agents may not. Run it before the processes of a new build
    start. What the stream keeps stays there.

    Exit status: 0 done; 6 the artifacts are missing, damaged or outdated; 7 the server cannot be used.

    \b
    Examples:
      graphbus nats deploy
      GRAPHBUS_LEDGER="$OPERATOR_ADDRESS" graphbus nats deploy
    """
    import asyncio

    project = read_project(artifacts)
    require_packages("A ledger on NATS", ["nats"], extra="nats")
    from graphbus_core.ledger.nats import deploy_stream

    settings = project.run.settings
    check_agents_on_nats(project.artifacts.agents.agents, settings.nats)
    subscriptions = subscriptions_in(project.artifacts, project.run)
    stream, changed = asyncio.run(deploy_stream(ledger or settings.ledger, settings.nats, subscriptions))
    said = (
        f"{style('✓', 'good')} The stream {stream} is ready; consumers made or changed: {', '.join(changed) or 'none'}."
    )
    console.print_result({"stream": stream, "consumers": changed}, [said], as_json=as_json)
