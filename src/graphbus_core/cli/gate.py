"""`graphbus gate`: its options. What it does is in `gate_change`, and in `hook_answer` for `--hook`: a hook that has nothing to
judge does not load the gate."""

from __future__ import annotations

from typing import Any

import click

from graphbus_core.cli import console
from graphbus_core.cli.gate_options import HOOKED_TOOLS, GateOptions
from graphbus_core.errors import UsageError


@click.command("gate", short_help="Run the gate on a change made outside a negotiation.")
@click.argument("path", default="", metavar="[FILE]")
@click.option("--new", default="", metavar="TEXT", help="A file with the new text of FILE; `-` is stdin.")
@click.option("--patch", default="", metavar="DIFF", help="A unified diff for the working tree; `-` is stdin.")
@click.option("--against", default="", metavar="REV", help="Compare the working tree with this revision (HEAD).")
@click.option("--staged", is_flag=True, help="Judge the staged changes, compared with HEAD.")
@click.option("--allow", multiple=True, metavar="GLOB", help="Allow changes to these files too, e.g. 'tests/**'.")
@click.option("--base-tests", is_flag=True, help="Run only the tests from before the change.")
@click.option("--unsafe-verify", is_flag=True, help="Accept changes that cannot be run or tested.")
@click.option("--hook", type=click.Choice(HOOKED_TOOLS), help="Answer a hook of this coding agent.")
@click.option("--format", "form", type=click.Choice(["text", "json", "sarif"]), help="The format of the report (text).")
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def gate(**values: Any) -> int:
    """Run the gate on a change that a person or another tool made, rung by rung, as on the proposals of agents. Nothing
    is written.

    By default the change is the difference between HEAD and the working tree, staged or not, new files included. With
    --patch it is a diff that is not applied yet; with FILE and --new it is a new text for one file. A change to a file
    that is neither Python nor a document is refused unless --allow names it.

    With --hook, the change is what a coding agent is about to write, as its hook says on stdin. Only G0 to G4 run, and
    the answer and exit status are those that the tool expects. `graphbus hooks install` sets it up.

    `graphbus check` judges the code as it is; the gate judges a change, and runs the tests on it.

    Exit status: 0 it passes; 3 it is refused; 2 wrong usage; 4 the patch does not apply. With --hook: 0 it passes; 2 the
    edit is blocked; 1 there is nothing to block.

    \b
    Examples:
      graphbus gate
      graphbus gate --against main --allow 'tests/**' --format sarif > gate.sarif
      git diff | graphbus -C ../clean gate --patch -
      graphbus gate agents/orders.py --new proposal.py
    """
    has_format = bool(values["form"] or values["as_json"])
    form = console.chosen_format(values)
    options = GateOptions(hook=values.pop("hook") or "", **values)
    _check_usage(options, has_format=has_format)
    if options.hook:
        from graphbus_core.cli.hook_answer import answer_hook

        return answer_hook(options)
    from graphbus_core.cli.gate_change import run_gate

    return run_gate(options, form)


def _check_usage(options: GateOptions, *, has_format: bool) -> None:
    """Raise GBE110 if options contradict each other, or FILE and `--new` are not both given."""
    names = ("hook", "new", "patch", "against", "staged", *(("base_tests", "unsafe_verify") if options.hook else ()))
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(options, name)]
    given += ["--format"] if options.hook and has_format else []
    message = f"{given[0]} and {given[1]} contradict each other: pass one of them." if len(given) > 1 else ""
    if bool(options.path) != bool(options.new):
        message = "FILE and --new go together: pass both, or neither."
    if message:
        raise UsageError("GBE110", message=message, command="graphbus gate", purpose="see its arguments and options")
