"""`graphbus ci`: the pipeline of a forge, so that each pull request is proved and what main holds is shipped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, get_args

import click

from graphbus_core.cli import console
from graphbus_core.cli.shipping import writing
from graphbus_core.cli.shipping.ci_project import (
    Checkout,
    has_branch,
    look_around,
    main_branch,
    place_agents,
    read_requirements,
)
from graphbus_core.deploy.facts import Files
from graphbus_core.deploy.names import as_label, check_label, refusal
from graphbus_core.deploy.pins import choose_python
from graphbus_core.deploy.pipelines import github, gitlab
from graphbus_core.deploy.pipelines.plan import (
    Negotiation,
    Plan,
    check_branch,
    check_cron,
    check_environment,
    check_plain,
)
from graphbus_core.deploy.pipelines.steps import SWITCH, Forge, amount
from graphbus_core.errors import UsageError
from graphbus_core.llm.providers import COMMAND, KNOWN, RULES, parse, providers_of
from graphbus_core.model.config import LLMConfig

_FORGES: tuple[Forge, ...] = get_args(Forge)
_CRON = "23 4 * * 1"
_MAX_USD = 5.0


class Options(NamedTuple):
    """What was asked for, named as the parameters of `ci`, in the order in which the command is shown again."""

    paths: tuple[str, ...]
    requirements: tuple[str, ...]
    installs: tuple[str, ...]
    python: str
    branch: str
    environment: str
    schedule: str | None
    model: str | None
    max_usd: float | None
    name: str
    has_image: bool
    has_deploy: bool
    has_negotiation: bool


@click.command("ci", short_help="Write the pipeline of GitHub or GitLab.", no_args_is_help=True)
@click.argument("forge", metavar="github|gitlab", type=click.Choice(_FORGES))
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option(
    "--requirements", "-r", multiple=True, metavar="FILE",
    help="What the jobs install, GraphBus among it; may be repeated (requirements.txt and requirements-dev.txt).",
)  # fmt: skip
@click.option("--install", "installs", multiple=True, metavar="COMMAND", help="Run this after that; may be repeated.")
@click.option("--python", default="", metavar="VERSION", help="Of the jobs (that of the image).")
@click.option(
    "--branch", default="", metavar="NAME", help="What is shipped from (main, or what the repository has for it)."
)
@click.option("--environment", default="production", metavar="NAME", help="What is deployed to (production).")
@click.option("--no-image", "has_image", flag_value=False, default=True, help="Build no image, and deploy nothing.")
@click.option("--no-deploy", "has_deploy", flag_value=False, default=True, help="Build the image, and deploy nothing.")
@click.option(
    "--negotiate", "has_negotiation", is_flag=True,
    help="Let the agents negotiate on a schedule; the result comes as a pull request.",
)  # fmt: skip
@click.option("--schedule", metavar="CRON", help=f"With --negotiate: when, in UTC ({_CRON}).")
@click.option("--model", metavar="MODEL", help="With --negotiate: who negotiates (as the settings say).")
@click.option(
    "--max-usd",
    type=click.FloatRange(min=0),
    metavar="USD",
    help=f"With --negotiate: for at most so much ({_MAX_USD:g}).",
)
@click.option(
    "--name", default="", metavar="NAME", help="What tells it from other projects of its repository (its folder)."
)
@click.option("--output", "-o", default="", metavar="DIR", help="Where to write (the top of the repository).")
@writing.options
def ci(*, forge: Forge, output: str, **given: Any) -> None:
    """Write the pipeline of a forge: what it does with each pull request, and with each commit on main.

    Pull requests: the agents are checked and built, the lock of a negotiation is proved, contracts are compared with the target
    branch, tests are run; without a secret. On main: the same, then the image and its deployment. PATH is where the agents are;
    without it, where the last build found them, or agents/. Nothing of other content is overwritten without --force. Where a
    .gitlab-ci.yml of yours exists, the jobs are written to a file that it can include.

    Exit status: 0 written; 2 wrong usage; 8 a value is refused, a file would be overwritten, or with --check would differ.

    \b
    Examples:
      graphbus ci github
      graphbus ci gitlab agents/ --python 3.12
      graphbus ci github --negotiate --schedule "23 4 * * 1" --max-usd 5
      graphbus ci github --no-deploy --install "pip install --no-deps -e ."
      graphbus ci github --check
    """
    wish = writing.Wish(**{name: given.pop(name) for name in writing.Wish._fields})
    options = Options(**given)
    _check_usage(options)
    checkout = look_around()
    plan = make_plan(forge, options, checkout)
    files = _files(forge, plan, checkout.top)
    states = writing.write(Path(output or os.path.relpath(checkout.top)), files, wish)
    if wish.as_json:
        facts = {"forge": forge, "command": plan.command, "python": plan.python, "branch": plan.branch}
        console.emit_json({**facts, "paths": plan.paths, "requirements": plan.requirements, "files": states})
    elif not wish.is_check:
        for line in _notes(forge, plan, checkout, files):
            console.say(console.plain(line))


def _check_usage(options: Options) -> None:
    alone = next((name for name in ("schedule", "model", "max_usd") if getattr(options, name) is not None), None)
    if alone and not options.has_negotiation:
        raise UsageError("GBE131", option=f"--{alone.replace('_', '-')}", needed="--negotiate")
    if options.max_usd is not None and not isfinite(options.max_usd):
        raise UsageError("GBE145", got=f"{options.max_usd:g}")


def make_plan(forge: Forge, options: Options, checkout: Checkout) -> Plan:
    """Decide what the pipeline is made from.

    Raises:
        DeployError: GBE703, GBE713, GBE736-739.
        UsageError: GBE101; what an unknown model raises.
    """
    requirements = read_requirements(options.requirements, checkout.root)
    plan = Plan(
        paths=place_agents(options.paths, checkout),
        requirements=requirements.files,
        has_hashes=requirements.has_hashes,
        has_git=requirements.has_git,
        installs=tuple(check_plain(line, "command") for line in options.installs),
        test=tuple(check_plain(word, "command") for word in checkout.settings.gate.test_command) or Plan().test,
        python=choose_python(options.python, checkout.requires_python),
        branch=check_branch(options.branch or main_branch(checkout.top)),
        folder=checkout.folder,
        name=_name(options.name, checkout.folder),
        has_image=options.has_image,
        has_deploy=options.has_image and options.has_deploy,
        environment=check_environment(options.environment),
        negotiation=_negotiation(options, checkout.settings.llm) if options.has_negotiation else None,
    )
    return plan._replace(command=_command(forge, options, plan))


def _command(forge: Forge, options: Options, plan: Plan) -> str:
    """The command that writes the same again, wherever the artifacts of the last build are."""
    changed = {
        "paths": plan.paths,
        "requirements": plan.requirements if options.requirements else (),
        "branch": "" if plan.branch == Plan().branch else plan.branch,
        "max_usd": None if options.max_usd is None else amount(options.max_usd),
    }
    return writing.command_line(f"graphbus ci {forge}", {**options._asdict(), **changed})


def _name(wanted: str, folder: str) -> str:
    """What files, jobs and image of a project are called by; `""` where the project is all of its repository."""
    if wanted:
        return check_label(wanted, "name of a project")
    name = as_label(Path(folder).name)
    if folder and not name:
        reason = f"nothing of the folder {folder} can be in the name of a job; give one with --name"
        raise refusal(folder, "name of a project", reason, "--name shop")
    return name


def _negotiation(options: Options, config: LLMConfig) -> Negotiation:
    providers = providers_of(config)
    settled = [text for text in (config.model, config.proposer, config.evaluator, config.arbiter) if text]
    model = options.model or ("" if settled else f"anthropic:{KNOWN['anthropic'].default_model}")
    specs = [parse(text, providers) for text in dict.fromkeys([model] if model else settled)]
    keys = [providers[spec.provider].key_env for spec in specs if spec.provider in providers]
    if any(spec.provider == COMMAND for spec in specs):
        keys += config.pass_env
    return Negotiation(
        cron=check_cron(options.schedule or _CRON),
        model=check_plain(model if model == RULES else str(specs[0]), "command") if model else "",
        keys=tuple(dict.fromkeys(filter(None, keys))),
        max_usd=_MAX_USD if options.max_usd is None else options.max_usd,
    )


def _files(forge: Forge, plan: Plan, top: Path) -> Files:
    if forge == "github":
        return github.generate(plan)
    return gitlab.generate(plan, is_included=bool(plan.folder) or _has_own_pipeline(top))


def _has_own_pipeline(top: Path) -> bool:
    """Is there a pipeline that was not written by us, or one that includes ours?"""
    try:
        return gitlab.MARK not in (top / gitlab.PIPELINE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _notes(forge: Forge, plan: Plan, checkout: Checkout, files: Files) -> Iterator[str]:
    """What is left to do."""
    if not checkout.is_repository:
        yield "There is no git repository here: a forge reads these files from the top of one."
    elif not has_branch(checkout.top, plan.branch):
        yield f"The repository has no branch {plan.branch}: name the one that is shipped from with --branch."
    if not plan.has_hashes:
        yield f"{', '.join(plan.requirements)}: not all have hashes, so that an index decides what is installed."
    if gitlab.included(plan) in files:
        yield f"Add to {gitlab.PIPELINE}:\n\n  include:\n    - local: {gitlab.included(plan)}\n"
    if plan.has_image and forge == "gitlab":
        yield "To build the image: give the project a privileged runner, for Docker in Docker."
    if plan.has_deploy:
        secret = "the secret KUBECONFIG" if forge == "github" else "the variable KUBECONFIG, of type file"
        yield (
            f"To deploy: commit k8s/ (`graphbus k8s generate`), give the environment {plan.environment} {secret}, "
            f"then set the variable {SWITCH} to true."
        )
    if plan.negotiation:
        keys = " and ".join(plan.negotiation.keys)
        held = f"give the environment negotiation {keys}; " if keys else ""
        yield f"To negotiate: {held}{_start(forge, plan.negotiation)}"


def _start(forge: Forge, negotiation: Negotiation) -> str:
    if forge == "github":
        return "let Actions create pull requests (Settings > Actions > General)."
    return (
        f"give the environment proposal {gitlab.PUSH_TOKEN}; "
        f"make a pipeline schedule ({negotiation.cron}) with the variable {gitlab.START} = true."
    )
