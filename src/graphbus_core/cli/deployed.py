"""`graphbus deployed`: record which builds run where; and `graphbus contract can-deploy`, which asks what they allow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from graphbus_core import settings, store
from graphbus_core.cli import both_ways_report, console
from graphbus_core.cli.both_ways_report import Builds
from graphbus_core.cli.console import pluralize, sanitize, style
from graphbus_core.cli.contract_reader import can_deploy_with_reader, print_report
from graphbus_core.cli.contract_report import as_fenced, with_rule
from graphbus_core.cli.deployments import Deployment, Deployments
from graphbus_core.cli.formats import Remark, as_github, as_sarif
from graphbus_core.cli.reader_states import ReaderState, read_one
from graphbus_core.cli.shipping import text_of
from graphbus_core.cli.state import ARTIFACTS
from graphbus_core.cli.states import GraphState, read_state
from graphbus_core.contracts.both_ways import compare_both_ways
from graphbus_core.contracts.deployed import DeployedBuild, DeployedComponent, join_messages
from graphbus_core.contracts.messages import Messages
from graphbus_core.errors import ArtifactError, BuildError, UsageError, did_you_mean
from graphbus_core.model.digests import sha256_hex
from graphbus_core.readers.seam import find_reader

_FAILED = BuildError.exit_status
_ENVIRONMENT = click.argument("environment", metavar="ENV")
_COMPONENT = click.option(
    "--component", default="", metavar="NAME", help="What is deployed as one (the name of the project)."
)
_READER = click.option(
    "--reader", default="", metavar="NAME", help="Read the messages of another framework: celery, or another reader."
)
_ONLY = click.option("--only", multiple=True, metavar="AGENT", help="Only this agent is deployed; may be repeated.")
_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")


@click.group("deployed", short_help="Record which build runs in which environment.")
def deployed() -> None:
    """Record which builds run in which environment, so that `graphbus contract can-deploy` can ask whether another one can be
    deployed beside them and in their place.

    The records are refs of the git repository, `refs/graphbus/deployed/*`; git shares them:

    \b
      git fetch origin '+refs/graphbus/*:refs/graphbus/*'
      git push origin 'refs/graphbus/*'

    \b
    Examples:
      graphbus deployed record production
      graphbus deployed ls
    """


@deployed.command("record", short_help="Record what runs in an environment now.")
@_ENVIRONMENT
@click.option(
    "--build",
    default=ARTIFACTS,
    metavar="BUILD",
    help="What was deployed (.graphbus): a folder with artifacts or sources, or a revision.",
)
@_COMPONENT
@_ONLY
@click.option(
    "--bundle", default="", metavar="FILE", help="Write the record to a git bundle, which another job can push."
)
@_READER
@_AS_JSON
def record(
    *, environment: str, build: str, component: str, only: tuple[str, ...], bundle: str, reader: str, as_json: bool
) -> None:
    """Record that a build runs in ENV now, in place of the one that was recorded for the component before.

    With --only, the other agents of the component stay as they are recorded. With --reader, BUILD is the working tree by default.

    Exit status: 0 done; 2 wrong usage; 6 the artifacts cannot be read; 8 there is no git repository.

    \b
    Examples:
      graphbus deployed record production
      graphbus deployed record production --only Payments
      graphbus deployed record staging --build v1.2 --component shop
    """
    deployments, component = Deployments(_root()), component or _own_component()
    state = _read_build(build, reader)
    part = _part_of(state.messages, state.agents, only)
    found = _find(deployments.read(environment), component)
    before = found.found if found else DeployedComponent(environment=environment, component=component)
    digest = state.digest or sha256_hex(msgspec.json.encode(part))
    agents = only or tuple(sorted(state.agents))
    new = DeployedBuild(digest=digest, revision=deployments.revision(), agents=agents, messages=part)
    deployments.write(before.deploy(new, replaces=only or {*before.agents, *agents}))
    if bundle:
        deployments.bundle(environment, component, bundle)
    document = {"environment": environment, "component": component, "digest": digest, "agents": agents}
    listed = f": {', '.join(agents)}" if agents else ""
    line = f"{style('✓', 'good')} {component} {digest[:12]} runs in {environment}{listed}."
    console.print_result(document, [line], as_json=as_json)


@deployed.command("ls", short_help="List what runs where.")
@click.argument("environment", metavar="[ENV]", default="")
@_AS_JSON
def ls(*, environment: str, as_json: bool) -> None:
    """List the recorded builds of all environments, or of ENV.

    Exit status: 0 done, also when there are none; 8 a record cannot be read.

    \b
    Examples:
      graphbus deployed ls
      graphbus deployed ls production --json
    """
    found = Deployments(_root()).read(environment)
    if as_json:
        console.emit_json({"deployed": [_deployment_as_document(each) for each in found]})
    elif found:
        headers = ("ENVIRONMENT", "COMPONENT", "BUILD", "COMMIT", "RECORDED", "AGENTS")
        console.print_table(headers, (row for each in found for row in _rows(each)))
    else:
        console.print_note("Nothing is recorded here. `graphbus deployed record ENV` records what runs in ENV.")


def _rows(deployment: Deployment) -> Iterator[tuple[str, ...]]:
    component, day = deployment.found, deployment.recorded_at[:16].replace("T", " ")
    for each in component.builds:
        names = component.environment, component.component, each.digest[:12], each.revision[:7], day
        yield (*map(sanitize, names), sanitize(", ".join(each.agents)))


@deployed.command("rm", short_help="Forget what ran in an environment.")
@_ENVIRONMENT
@_COMPONENT
@_AS_JSON
def rm(*, environment: str, component: str, as_json: bool) -> None:
    """Forget the builds of a component in ENV, because it does not run there any more.

    Exit status: 0 done; 2 it is not recorded.

    \b
    Examples:
      graphbus deployed rm staging
      graphbus deployed rm production --component legacy-mail
    """
    component = component or _own_component()
    if not Deployments(_root()).remove(environment, component):
        raise UsageError("GBE174", component=component, environment=environment, suggestion="")
    line = f"{style('✓', 'good')} {component} is no longer recorded in {environment}."
    console.print_result({"environment": environment, "component": component}, [line], as_json=as_json)


def _read_build(build: str, reader: str) -> GraphState | ReaderState:
    """Read what was deployed, by default the artifacts; with a reader, the working tree.

    Raises:
        GraphBusError: It cannot be read, or nothing was built.
    """
    if reader:
        return read_one("" if build == ARTIFACTS else build, find_reader(reader), ())
    if build == ARTIFACTS:
        store.load_manifest(build)  # raises: nothing was built here
    return read_state(build, ())


def _root() -> Path:
    return settings.find_root([Path.cwd()])


def _own_component() -> str:
    """Return the name of the project; that of its folder if pyproject.toml has none."""
    return text_of(settings.project_table(_root()), "name") or _root().name


def _find(deployments: Iterable[Deployment], component: str) -> Deployment | None:
    return next((each for each in deployments if each.found.component == component), None)


def _part_of(messages: Messages, agents: Collection[str], only: Sequence[str]) -> Messages:
    """Return only the messages of some of the agents; without names, of all.

    Raises:
        ArtifactError: GBE511, there is no agent with one of the names.
    """
    for name in only:
        if name not in agents:
            known = ", ".join(sorted(agents))
            raise ArtifactError("GBE511", name=name, suggestion=did_you_mean(name, agents), known=known)
    return messages.of_units(only) if only else messages


def _deployment_as_document(deployment: Deployment) -> dict[str, Any]:
    component = deployment.found
    return {
        "environment": component.environment,
        "component": component.component,
        "recorded_at": deployment.recorded_at,
        "builds": [
            {"digest": each.digest, "revision": each.revision, "agents": each.agents} for each in component.builds
        ],
    }


# --- can-deploy ----------------------------------------------------------------------------------


class _Answer(NamedTuple):
    """What the builds in an environment say about a deploy: each component, and the comparison with it.

    Attributes:
        is_forced: Breaks are allowed.
        is_strict: What is not known fails.
    """

    environment: str
    component: str
    asked: tuple[tuple[Deployment, Builds], ...]
    root: str
    is_forced: bool
    is_strict: bool

    @property
    def fails(self) -> bool:
        """True if the command fails."""
        return bool(self.is_strict and self.unknown) or not (self.is_yes or self.is_forced)

    @property
    def is_yes(self) -> bool:
        """True if nothing breaks."""
        return not any(builds.found.breaks for _, builds in self.asked)

    @property
    def unknown(self) -> int:
        """The number of edges of which it is not known whether a change breaks them, and of places that could not be read."""
        found = [builds.found for _, builds in self.asked]
        edges = sum(edge.verdict == "unknown" and edge.is_new for each in found for edge in each.edges)
        return edges + sum(len(unread) for each in found for unread in each.unread)


@click.command("can-deploy", short_help="Ask whether a build can be deployed to an environment.")
@click.argument("state", metavar="[BUILD]", default="")
@click.option("--to", "environment", required=True, metavar="ENV", help="The environment.")
@_COMPONENT
@_ONLY
@click.option(
    "--path", "paths", multiple=True, metavar="PATH", help="Where the agents are, in a revision or the working tree."
)
@_READER
@click.option("--allow-unrecorded", is_flag=True, help="Do not fail if nothing was recorded yet.")
@click.option("--allow-breaking", is_flag=True, help="Do not fail for messages that break.")
@click.option(
    "--strict",
    "is_strict",
    is_flag=True,
    help="Also fail if it is not known whether messages break, which --allow-breaking does not allow.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "sarif", "github", "markdown"]),
    help="The format of the report (text).",
)
def can_deploy(
    *,
    state: str,
    environment: str,
    component: str,
    only: tuple[str, ...],
    paths: tuple[str, ...],
    reader: str,
    allow_unrecorded: bool,
    allow_breaking: bool,
    is_strict: bool,
    **options: Any,
) -> int:
    """Compare BUILD (the working tree by default; a folder or a revision) with every build that `graphbus deployed record` has
    recorded in ENV, both ways: `graphbus contract diff --both-ways` for all that runs there.

    The component of the same name is replaced; the others stay beside it. With --only, its other agents stay as well. What
    agents store in `self.state` is not compared.

    Exit status: 0 nothing is known to break; 2 nothing is recorded, or wrong usage; 3 messages would break, or with --strict
    may break; 8 a record or a state cannot be read.

    \b
    Examples:
      graphbus contract can-deploy --to production
      graphbus contract can-deploy --to production --only Payments
      graphbus contract can-deploy v1.3 --to staging --format github
    """
    form, component = console.chosen_format(options), component or _own_component()
    recorded = Deployments(_root()).read(environment)
    if not allow_unrecorded:
        _check_recorded(recorded, environment, component)
    if reader:
        if only:
            message = "--only names agents, which --reader does not know."
            raise UsageError(
                "GBE110", message=message, command="graphbus contract can-deploy", purpose="see its options"
            )
        report = can_deploy_with_reader(reader, state, paths, [each.found for each in recorded], component)
        report = report._replace(is_allowed=allow_breaking, is_strict=is_strict)
        print_report(report, form)
        return _FAILED if report.fails else 0
    new = read_state(state, paths)
    deploy = _Deploy(new, new.messages, component, only)
    asked = tuple((each, deploy.compare(each)) for each in recorded)
    answer = _Answer(environment, component, asked, new.root, allow_breaking, is_strict)
    _print_answer(answer, form)
    return _FAILED if answer.fails else 0


class _Deploy(NamedTuple):
    """A deploy that is asked about: a state with all of its messages, the component, and the agents; none: all."""

    state: GraphState
    whole: Messages
    component: str
    only: tuple[str, ...]

    def compare(self, deployment: Deployment) -> Builds:
        """Compare a recorded component with what runs after the deploy: in place of the own component, beside others."""
        recorded, part = deployment.found, _part_of(self.whole, self.state.agents, self.only)
        is_own, old = recorded.component == self.component, recorded.messages
        if is_own:
            rest = old.without(self.only or recorded.agents)
        else:  # what each of them takes from outside, the other one may send
            rest = old = old.without_outside()
            part = part.without_outside()
        revisions = dict.fromkeys(each.revision[:7] or each.digest[:12] for each in recorded.builds)
        place = recorded.environment if is_own else f"{recorded.component} in {recorded.environment}"
        found = compare_both_ways(old, join_messages(rest, part), self.whole)
        return Builds(f"{place} ({', '.join(revisions)})", self.state.label, found, self.state.root)


def _check_recorded(recorded: Sequence[Deployment], environment: str, component: str) -> None:
    """Raise GBE173 if nothing is recorded in the environment, GBE174 if this component is not."""
    if not recorded:
        suggestion = did_you_mean(environment, Deployments(_root()).environments())
        raise UsageError("GBE173", environment=environment, suggestion=suggestion)
    if _find(recorded, component) is None:
        suggestion = did_you_mean(component, [each.found.component for each in recorded])
        raise UsageError("GBE174", component=component, environment=environment, suggestion=suggestion)


def _print_answer(answer: _Answer, form: str) -> None:
    if form == "json":
        console.emit_json(_answer_as_document(answer))
    elif form == "sarif":
        console.emit_json(as_sarif("GraphBus contract", answer.root or str(_root()), map(with_rule, _remarks(answer))))
    elif form == "github":
        console.print_lines(as_github(answer.root, _remarks(answer)))
    elif form == "markdown":
        console.print_lines(as_fenced(f"Deploy to {answer.environment}", _answer_lines(answer)))
    else:
        console.print_lines(_answer_lines(answer))


def _remarks(answer: _Answer) -> Iterator[Remark]:
    for _, builds in answer.asked:
        yield from both_ways_report.as_remarks(builds, is_allowed=answer.is_forced)


def _answer_lines(answer: _Answer) -> Iterator[str]:
    """Yield the comparison with each component, and then the answer."""
    for _, builds in answer.asked:
        yield from both_ways_report.as_lines(builds)
        yield ""
    environment = sanitize(answer.environment)
    if not any(each.found.component == answer.component for each, _ in answer.asked):
        what = f"No build of {sanitize(answer.component)} is recorded in {environment}"
        yield f"{style('?', 'warn')} {what}: nothing says what it replaces."
    elif answer.is_yes and answer.unknown:
        what = f"Nothing is known to break in {environment}, but {pluralize(answer.unknown, 'edge or place', 'edges or places')}"
        yield f"{style('?', 'warn')} {what} could not be compared."
    elif answer.is_yes:
        count = pluralize(sum(len(each.found.builds) for each, _ in answer.asked), "build")
        yield f"{style('✓', 'good')} It can be deployed to {environment}: nothing breaks between it and {count} there."
    else:
        yield f"{style('✗', 'bad')} It cannot be deployed to {environment}: messages would break."
    if answer.is_strict and answer.unknown:
        what = pluralize(answer.unknown, "edge or place", "edges or places")
        yield f"{style('✗', 'bad')} --strict fails for {what} that could not be compared."


def _answer_as_document(answer: _Answer) -> dict[str, Any]:
    """Return the answer for `--json`; `can_deploy` is null if the component is not recorded, or if --strict fails."""
    is_recorded = any(each.found.component == answer.component for each, _ in answer.asked)
    is_known = is_recorded and not (answer.is_strict and answer.unknown)
    return {
        "environment": answer.environment,
        "component": answer.component,
        "can_deploy": answer.is_yes if is_known or not answer.is_yes else None,
        "unknown": answer.unknown,
        "compared": [
            {**_deployment_as_document(each), **both_ways_report.as_document(builds.found)}
            for each, builds in answer.asked
        ],
    }
