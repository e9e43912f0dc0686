"""Generates CI pipelines for GitHub and GitLab: for pull requests, for commits on main, and for scheduled negotiations.

    on a pull request    check  build  frozen  contract  test         no secret, and a token that can only read
    on main              check  build  frozen  test  ->  image  ->  deploy  ->  record
    on a schedule        negotiate  ->  propose

The templates are `templates/github*.yml` and `templates/gitlab.yml`. Only checked values are inserted into scripts: names and
paths are checked when the plan is made, and values that exist only on the runner are passed in variables. On GitHub, the workflow
of pull requests has no secret but the registry's token, in a job for main only; the negotiation has a workflow of its own.
"""

from __future__ import annotations

import re
import shlex
from posixpath import relpath
from typing import Any, Literal, NamedTuple

from graphbus_core.deploy.names import BASES, DEFAULT_PYTHON, invalid_value
from graphbus_core.deploy.render import Files, fill_template
from graphbus_core.errors import DeployError

Forge = Literal["github", "gitlab"]

PROJECT_FILE = "pyproject.toml"

GITLAB_PIPELINE = ".gitlab-ci.yml"
GITLAB_MARK = "Written by `graphbus ci"
"""The first words of a generated pipeline, by which it is recognized."""

_NAMES = {
    "branch": (
        re.compile(r"(?!HEAD$|refs/)(?!.*\.\.)(?=.{1,200}$)\w[\w.-]*(?:/\w[\w.-]*)*(?<!\.)(?<!\.lock)", re.ASCII),
        "it may contain letters, digits, dots, hyphens and `_`, in parts separated by /",
        "main",
    ),
    "environment": (
        re.compile(r"\w[\w./ -]{0,62}(?<! )", re.ASCII),
        "it may contain letters, digits, spaces, slashes, dots, hyphens and `_`",
        "production",
    ),
}
_UNSAFE_IN_PATHS = re.compile(r"[*?\[\]{}$\\]|^[-#!~\s]|\s$")
"""Characters and positions in a path that GitHub or GitLab would interpret, as a pattern, a variable or a comment."""
_SAFE_LINE = re.compile(r"(?:(?!\$\{\{)[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff])+")
"""One line of text without control characters and without an expression of GitHub, `${{`."""
_CRON_PART = r"(?:\*|[0-9]{1,2}|[A-Za-z]{3})(?:-(?:[0-9]{1,2}|[A-Za-z]{3}))?(?:/[1-9][0-9]?)?"
_CRON_FIELD = re.compile(rf"{_CRON_PART}(?:,{_CRON_PART})*")
"""The syntax of a field of a schedule; its values are not checked here."""


class NegotiationJob(NamedTuple):
    """The job that negotiates on a schedule.

    Attributes:
        cron: The schedule as five cron fields, in UTC.
        model: The value of `--model`; empty: the models of the settings.
        keys: The names of the variables that hold the API keys of the models.
        max_usd: What one session may cost; 0: no limit.
    """

    cron: str
    model: str
    keys: tuple[str, ...]
    max_usd: float


class PipelinePlan(NamedTuple):
    """The input of `generate_github` and `generate_gitlab`.

    Attributes:
        command: The command that writes the same files again.
        paths: The paths of the agents, for the commands of GraphBus; empty: the working directory.
        requirements: The files of packages to install, GraphBus included; `pyproject.toml`: its dependencies and group `dev`.
        wheel: The path of a wheel of GraphBus in the repository, if it is committed with the pipeline; else empty.
        has_hashes: Every requirement has a hash.
        has_git: Some requirement is fetched with git.
        installs: Further commands that install something.
        test: The command that runs the tests of the project.
        python: The minor version of Python, such as `"3.12"`.
        branch: The branch that images and deployments are made from.
        folder: The path of the project in its repository; `""`: the top.
        name: Distinguishes the project from others in the repository, and is added to the image's name; `""`: the only one.
        has_image: Build an image from `branch` and push it.
        has_deploy: Deploy that image.
        environment: The name of the forge's environment for deployments.
        has_ledger: Events wait in a ledger, so builds are compared both ways, and what runs in the environment is recorded.
        negotiation: The scheduled job; None: there is none.
    """

    command: str = "graphbus ci"
    paths: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ("requirements.txt",)
    wheel: str = ""
    has_hashes: bool = True
    has_git: bool = False
    installs: tuple[str, ...] = ()
    test: tuple[str, ...] = ("python", "-m", "pytest")
    python: str = DEFAULT_PYTHON
    branch: str = "main"
    folder: str = ""
    name: str = ""
    has_image: bool = True
    has_deploy: bool = True
    environment: str = "production"
    has_ledger: bool = False
    negotiation: NegotiationJob | None = None

    @property
    def prefix(self) -> str:
        """The beginning of the names of jobs and files, unique in the repository."""
        return f"graphbus-{self.name}" if self.name else "graphbus"

    @property
    def included(self) -> str:
        """The path of the generated file if the user's own pipeline of GitLab includes it."""
        return f".gitlab/{self.prefix}.yml"

    def in_repository(self, *names: str) -> tuple[str, ...]:
        """Return paths of the project relative to the top of its repository."""
        return tuple(f"{self.folder}/{name}" if self.folder else name for name in names)


def generate_github(plan: PipelinePlan) -> Files:
    """Return path -> text of the workflow, and of a second one for the negotiation if the plan has it."""
    values = _template_values(plan, guarded=":/.github")
    # A run that makes a release must not use files that another run has cached.
    has_cache = "release" not in plan.branch
    begin = {
        "begin": fill_template("github-begin.yml", **values, needs_base=False, has_cache=False),
        "begin_cached": fill_template("github-begin.yml", **values, needs_base=False, has_cache=has_cache),
        "begin_contract": fill_template("github-begin.yml", **values, needs_base=True, has_cache=has_cache),
    }
    values |= {**begin, "check": f"{values['check']} --format github"}
    found = {f".github/workflows/{plan.prefix}.yml": fill_template("github.yml", **values)}
    if plan.negotiation:
        found[f".github/workflows/{plan.prefix}-negotiate.yml"] = fill_template("github-negotiate.yml", **values)
    return found


def generate_gitlab(plan: PipelinePlan, *, is_included: bool = False) -> Files:
    """Return path -> text of the pipeline: `.gitlab-ci.yml` or, if `is_included`, a file that the user's own pipeline includes.

    The pipeline does not disturb other jobs: it uses the predefined stages, and its jobs share settings through a hidden job.
    Only `.gitlab-ci.yml` defines for which events pipelines run.
    """
    values = _template_values(plan, guarded=f":/{GITLAB_PIPELINE} :/.gitlab")
    path = plan.included if is_included else GITLAB_PIPELINE
    return {path: fill_template("gitlab.yml", **values, is_included=is_included)}


def _template_values(plan: PipelinePlan, *, guarded: str) -> dict[str, Any]:
    """Return placeholder -> value for the templates; `guarded` are the paths that a negotiation must not change, for git."""
    build = _quote_command("graphbus", "build", *plan.paths)
    return {
        **plan._asdict(),
        **_negotiation_values(plan.negotiation, plan),
        "prefix": plan.prefix,
        "title": f" {plan.name}" if plan.name else "",
        "suffix": f" ({plan.name})" if plan.name else "",
        "below": f"/{plan.name}" if plan.name else "",
        "base": BASES[plan.python],
        "context": _quote_command(plan.folder or "."),
        "enter": _quote_command("cd", plan.folder),
        "requirement_paths": plan.in_repository(*plan.requirements),
        "cache_keys": plan.in_repository(*plan.requirements[:2]),
        "prepared": plan.in_repository(".dockerignore", ".graphbus", "Dockerfile", "docker"),
        "results": plan.in_repository("negotiation.bundle", "graphbus-report.html"),
        "install": "\n".join((_install_commands(plan), *plan.installs, "graphbus --version")),
        "check": _quote_command("graphbus", "check", *plan.paths),
        "build": build,
        "contract": _quote_command("graphbus", "contract", *plan.paths),
        "messages": _quote_command("graphbus", "contract", "diff", "--both-ways", *_path_options(plan)),
        "can_deploy": _quote_command(
            "graphbus", "contract", "can-deploy", "--allow-unrecorded", *_path_options(plan), "--to", plan.environment
        ),
        "record": _quote_command("graphbus", "deployed", "record", plan.environment, "--bundle", "record.bundle"),
        "bundle": plan.in_repository("record.bundle")[0],
        "test": _quote_command(*plan.test),
        "prove": fill_template("prove.sh", build=build),
        "pack": fill_template("pack.sh"),
        "unpack": fill_template("unpack.sh", guarded=guarded),
    }


def _path_options(plan: PipelinePlan) -> list[str]:
    """Return the paths of the agents as options."""
    return [word for path in plan.paths for word in ("--path", path)]


def _install_commands(plan: PipelinePlan) -> str:
    """Return the commands that install the requirements or, if these are `pyproject.toml`, the dependencies in it."""
    if plan.requirements == (PROJECT_FILE,):
        words = ("pytest" if "pytest" in plan.test else "", plan.wheel and relpath(plan.wheel, plan.folder or "."))
        return fill_template("pyproject.sh", words="".join(f" {shlex.quote(word)}" for word in words if word)).rstrip()
    named = [word for name in plan.requirements for word in ("--requirement", name)]
    return _quote_command("python", "-m", "pip", "install", "--require-hashes" if plan.has_hashes else "", *named)


def _negotiation_values(negotiation: NegotiationJob | None, plan: PipelinePlan) -> dict[str, Any]:
    """Return placeholder -> value for the scheduled job."""
    if negotiation is None:
        return {"has_negotiation": False}
    model = ("--model", negotiation.model) if negotiation.model else ()
    words = (*plan.paths, *model, "--max-usd", format_usd(negotiation.max_usd), "--commit")
    keys = negotiation.keys
    return {
        "has_negotiation": True,
        "cron": negotiation.cron,
        "negotiate": _quote_command("graphbus", "negotiate", *words),
        "keys": keys,
        "held": f"holds {' and '.join(keys)}, protected and masked" if keys else "no key is needed",
        "secrets": tuple(f'{name}: "${{{{ secrets.{name} }}}}"  # of the environment' for name in keys),
    }


def _quote_command(*words: str) -> str:
    """Join words into a quoted command for bash; empty words are left out."""
    return shlex.join(word for word in words if word)


def format_usd(usd: float) -> str:
    """Return an amount for a command-line option, with at most six decimals and without trailing zeros."""
    return f"{usd:.6f}".rstrip("0").rstrip(".")


def check_ref_name(value: str, kind: Literal["branch", "environment"]) -> str:
    """Return the value if both forges accept it as the name of a branch (and no pattern) or of an environment.

    Raises:
        DeployError: GBE703 if it is not.
    """
    pattern, reason, example = _NAMES[kind]
    if not pattern.fullmatch(value):
        raise invalid_value(value, f"{kind} name", reason, example)
    return value


def check_script_text(value: str, kind: str) -> str:
    """Return the value if it can be inserted into a script: one line, without expressions that a forge would expand.

    Args:
        value: A command or a path.
        kind: What it is, for the message; for any kind but `command`, pattern characters are refused too.

    Raises:
        DeployError: GBE737 if it cannot.
    """
    if not _SAFE_LINE.fullmatch(value) or (kind != "command" and _UNSAFE_IN_PATHS.search(value)):
        advice = "Use one line without control characters and without `${{`."
        if kind != "command":
            advice += " It must not contain any of `*?[]{}$\\`, nor begin with one of `-#!~`."
        raise DeployError("GBE737", value=repr(value), kind=kind, advice=advice)
    return value


def check_cron(value: str) -> str:
    """Return a cron schedule of five fields with single spaces between them.

    Raises:
        DeployError: GBE703 for anything else.
    """
    fields = value.split()
    if len(fields) != 5 or not all(map(_CRON_FIELD.fullmatch, fields)):
        raise invalid_value(
            value, "schedule", "it must have five fields: minute, hour, day, month and day of the week", "23 4 * * 1"
        )
    return " ".join(fields)
