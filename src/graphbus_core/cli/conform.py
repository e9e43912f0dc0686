"""`graphbus conform`: tests whether a program follows the negotiation protocol, requirement by requirement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from math import inf
from pathlib import Path
from typing import Any

import click
import msgspec

from graphbus_core import settings
from graphbus_core.cli import console
from graphbus_core.cli.console import pluralize, sanitize_line, style
from graphbus_core.editing.sandboxes import choose_sandbox
from graphbus_core.errors import BuildError, ModelError, UsageError, did_you_mean
from graphbus_core.model.config import AgentProgram, BuildConfig, ResolvedBuild
from graphbus_core.negotiation.gbnp.conformance import Conformance, Kit
from graphbus_core.negotiation.gbnp.messages import ROLES
from graphbus_core.negotiation.gbnp.program import Program
from graphbus_core.negotiation.gbnp.requirements import REQUIREMENTS
from graphbus_core.negotiation.sample_question import sample_question_for

_BROKEN = BuildError.exit_status
_FORMS = ("text", "json", "junit")
_VERDICTS = ("pass", "fail", "never exercised", "not applicable")
_ROLES: dict[str, console.Role] = {"pass": "good", "fail": "bad"}


@click.command("conform", short_help="Test a program that shall represent an agent.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- PROGRAM...]")
@click.option("--agent", default="", metavar="NAME", help="The agent that the program represents.")
@click.option("--arbiter", is_flag=True, help="The program shall settle disputes.")
@click.option("--seed", default=0, metavar="N", help="Chooses the random conversations (0).")
@click.option(
    "--examples", default=20, type=click.IntRange(0), metavar="N", help="How many random conversations are played (20)."
)
@click.option("--timeout", "timeout_s", type=float, metavar="S", help="The seconds that an answer may take (10).")
@click.option("--transcripts", default="", metavar="FOLDER", help="Write each conversation to a file there.")
@click.option("--format", "form", type=click.Choice(_FORMS), help="The format of the report (text).")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def conform(**values: Any) -> int:
    """Test whether a program follows the negotiation protocol, requirement by requirement.

    The program is started for each conversation, in the sandbox in which a negotiation would start it. Without PROGRAM
    it is that of --agent in [tool.graphbus.agents]. The questions are about the agent of the project if it has one
    with this name, else about a small built-in shop.

    \b
    pass             answers have put the requirement to the test, none broke it
    fail             it was broken
    not applicable   the program does not have the capability
    never exercised  no conversation has put it to the test

    Exit status: 0 no requirement is broken; 3 at least one is; 2 wrong usage; 5 the program cannot be started.

    \b
    Examples:
      graphbus conform -- node agent.mjs
      graphbus conform --agent PrinterService
      graphbus conform --agent Referee --format junit -- ./referee > conform.xml
    """
    form = console.chosen_format(values)
    config = settings.resolve_build(BuildConfig(paths=(".",), enable_agents=True))
    agent = values["agent"] or "Stock"
    program = _choose_program(config, agent, values)

    root = Path(config.root)
    sandbox = choose_sandbox(config.settings.gate.isolation, root)
    if sandbox is None:
        advice = 'Install bubblewrap, or set `isolation = "process"` in [tool.graphbus.gate].'
        raise ModelError("GBE465", program=program.command[0], reason="no sandbox works here", advice=advice)
    with ExitStack() as stack:
        sample = stack.enter_context(sample_question_for(config, agent))
        definition = sample.view.definition
        is_arbiter = bool(values["arbiter"] or (definition and definition.is_arbiter))
        kit = Kit(
            agent,
            ROLES[is_arbiter],
            (sample.view, sample.trial),
            lambda note_line: Program(program, root, sandbox, note_line=note_line),
            note_line=_open_transcripts(values["transcripts"]),
        )
        stack.callback(console.show_status, "")
        found = kit.run(values["seed"], values["examples"], lambda name: console.show_status(f"Playing: {name}"))
    if form == "junit":
        console.print_line(_as_junit(found), end="")
    else:
        console.print_result(_as_document(found), _describe(found), as_json=form == "json")
    return 0 if found.is_conforming else _BROKEN


def _choose_program(config: ResolvedBuild, agent: str, values: dict[str, Any]) -> AgentProgram:
    """Return the program to test, with its time limit.

    Raises:
        UsageError: GBE110, the name cannot be that of a class, or there is no program.
    """
    known = config.settings.agents
    message = "" if agent.isidentifier() else f"--agent {agent} cannot be the name of a class."
    if not values["command"] and agent not in known:
        named = f"[tool.graphbus.agents] has no program for {agent}.{did_you_mean(agent, known)}"
        message = f"{named} Name one after `--`: `graphbus conform -- node agent.mjs`."
    own = known.get(agent, AgentProgram(command=tuple(values["command"]), timeout_s=10.0))
    limit_s = own.timeout_s if values["timeout_s"] is None else values["timeout_s"]
    if not 0 < limit_s < inf:  # neither is NaN
        message = f"--timeout {limit_s:g} is no number of seconds above 0."
    if message:
        raise UsageError("GBE110", message=message, command="graphbus conform", purpose="see its arguments and options")
    command = values["command"] or own.command
    return msgspec.structs.replace(own, command=command, timeout_s=limit_s)


def _open_transcripts(folder: str) -> Callable[[str, str, bytes], object]:
    """Return a function that appends a line to the transcript of a scenario; without a folder it does nothing."""
    if not folder:
        return lambda _scenario, _side, _line: None
    Path(folder).mkdir(parents=True, exist_ok=True)
    begun: set[str] = set()

    def note_line(scenario: str, side: str, line: bytes) -> None:
        name = f"{scenario.replace('/', '-').replace(' ', '-')}.jsonl"
        with open(Path(folder, name), "ab" if name in begun else "wb") as file:
            begun.add(name)
            file.write(msgspec.json.encode(_as_entry(side, line)) + b"\n")

    return note_line


def _as_entry(side: str, line: bytes) -> dict[str, str | bytes]:
    """Return a line as an entry of a transcript, in the form of those that the specification names; bytes become base64."""
    with suppress(UnicodeDecodeError):
        if line.endswith(b"\n"):
            return {side: line[:-1].decode()}
    return {f"{side}_base64": line}


def _as_document(found: Conformance) -> dict[str, Any]:
    """Return the report for `--json`: the outcome, with each requirement in words."""

    document: dict[str, Any] = msgspec.to_builtins(found)
    document["verdicts"] = [
        {"requirement": number, "verdict": verdict, "text": REQUIREMENTS[number].text}
        for number, verdict in found.verdicts.items()
    ]
    document["failures"] = [failure._asdict() for failure in found.failures]
    return {"is_conforming": found.is_conforming, **document}


def _describe(found: Conformance) -> Iterator[str]:
    """Yield the lines of the report."""

    for number, verdict in found.verdicts.items():
        yield f"{number}  {style(f'{verdict:<15}', _ROLES.get(verdict, 'dim'))}  {REQUIREMENTS[number].text}"
    first: dict[str, Any] = {}
    for failure in found.failures:
        first.setdefault(failure.requirement, failure)
    for failure in first.values():
        times = sum(each.requirement == failure.requirement for each in found.failures)
        yield ""
        also = f" (and in {pluralize(times - 1, 'other conversation')})" if times > 1 else ""
        yield style(f"{failure.requirement} in `{failure.scenario}`{also}: {sanitize_line(failure.reason)}", "bad")
        yield f"  asked:    {sanitize_line(failure.asked)}"
        yield f"  answered: {sanitize_line(failure.answered)}"
    yield ""
    given = [*found.verdicts.values()]
    summary = ", ".join(f"{given.count(verdict)} {verdict}" for verdict in _VERDICTS if verdict in given)
    mark = style("✓", "good") if found.is_conforming else style("✗", "bad")
    who = f"{sanitize_line(found.program)[:80] or 'The program'} for {found.agent}"
    yield f"{mark} {who}: {summary} in {pluralize(found.scenarios, 'conversation')}."
    times_ms = [("It joins in", found.join_ms), ("an answer to a small question takes", found.round_trip_ms)]
    told = [f"{words} {time_ms:.{0 if time_ms >= 10 else 2}f} ms" for words, time_ms in times_ms if time_ms is not None]
    if told:
        yield "; ".join(told) + " (medians)."


def _as_junit(found: Conformance) -> str:
    """Return the report in the XML that CI servers read: a test case for each requirement."""
    from xml.etree import ElementTree

    verdicts = found.verdicts
    skipped = sum(verdict not in ("pass", "fail") for verdict in verdicts.values())
    failures = sum(verdict == "fail" for verdict in verdicts.values())
    counts = {"tests": str(len(verdicts)), "failures": str(failures), "skipped": str(skipped)}
    suite = ElementTree.Element("testsuite", {"name": f"graphbus conform {found.agent}", **counts})
    for number, verdict in verdicts.items():
        name = f"{number} {REQUIREMENTS[number].text}"
        case = ElementTree.SubElement(suite, "testcase", {"classname": "gbnp", "name": name})
        for failure in found.failures:
            if failure.requirement == number:
                message = _for_xml(f"{failure.scenario}: {failure.reason}")
                told = ElementTree.SubElement(case, "failure", {"message": message})
                told.text = _for_xml(f"asked: {failure.asked}\nanswered: {failure.answered}")
        if verdict not in ("pass", "fail"):
            ElementTree.SubElement(case, "skipped", {"message": verdict})
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _for_xml(text: str) -> str:
    """Return a text without the characters that XML does not allow."""
    return "".join(each if each.isprintable() or each == "\n" else "?" for each in text)
