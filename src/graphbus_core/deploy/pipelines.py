"""Pipelines: what a forge does with each pull request, with each commit on main, and on a schedule.

    on a pull request    check  build  frozen  contract  test         no secret, and a token that can only read
    on main              check  build  frozen  test  ->  image  ->  deploy
    on a schedule        negotiate  ->  propose

The files are `templates/github*.yml` and `templates/gitlab.yml`. A value that nobody has checked never gets into a script: names
and paths are checked when the plan is made, and what is known only on the runner comes in a variable. On GitHub, the file that
pull requests run has no secret but the registry's token, in a job that only main starts; the negotiation has its own file.
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
"""A file of ours begins with it."""

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
_PATTERN = re.compile(r"[*?\[\]{}$\\]|^[-#!~\s]|\s$")
"""What one of the forges reads as a pattern, a variable or a comment where a path is expected."""
_PLAIN = re.compile(r"(?:(?!\$\{\{)[^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff])+")
_CRON_PART = r"(?:\*|[0-9]{1,2}|[A-Za-z]{3})(?:-(?:[0-9]{1,2}|[A-Za-z]{3}))?(?:/[1-9][0-9]?)?"
_CRON_FIELD = re.compile(rf"{_CRON_PART}(?:,{_CRON_PART})*")
"""What a field of a schedule looks like; whether a month or minute exists, the forge says."""


class NegotiationJob(NamedTuple):
    """The scheduled job.

    Attributes:
        cron: When, in five fields, UTC.
        model: Who negotiates, as `--model` takes it; empty: as the settings say for each role.
        keys: The variables with the keys of the models.
        max_usd: What one session may cost; 0: no limit.
    """

    cron: str
    model: str
    keys: tuple[str, ...]
    max_usd: float


class PipelinePlan(NamedTuple):
    """Everything that a pipeline depends on.

    Attributes:
        command: What writes the same again.
        paths: Where the agents are, as the commands take them; empty: the working directory.
        requirements: Files with what the jobs install, GraphBus among it; `pyproject.toml`: its dependencies and its group `dev`.
        wheel: The path of a wheel of GraphBus below the top of the repository, if it is committed with the pipeline.
        has_hashes: Every requirement bears its hash.
        has_git: Some of it is fetched by git.
        installs: Further commands that install something.
        test: The command of the project's tests.
        python: Minor version, `"3.12"`.
        branch: From which images and deployments are made.
        folder: The project below the top of its repository; `""`: it is the top.
        name: What tells it from other projects of its repository, also behind the name of the image; `""`: it is the only one.
        has_image: Build and push an image from `branch`.
        has_deploy: And deploy it.
        environment: The forge's environment of the deployment.
        negotiation: The scheduled job, if there is to be one.
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
    negotiation: NegotiationJob | None = None

    @property
    def prefix(self) -> str:
        """How the names of its jobs and files begin, so that several projects of one repository have their own."""
        return f"graphbus-{self.name}" if self.name else "graphbus"

    @property
    def included(self) -> str:
        """The path of the file that a pipeline of GitLab includes."""
        return f".gitlab/{self.prefix}.yml"

    def in_repository(self, *names: str) -> tuple[str, ...]:
        """Return paths of the project as the top of its repository sees them."""
        return tuple(f"{self.folder}/{name}" if self.folder else name for name in names)


def generate_github(plan: PipelinePlan) -> Files:
    """Return the workflow, and the one of the negotiation if there is to be one."""
    values = _values(plan, guarded=":/.github")
    # A release is made from nothing that another run has kept.
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
    """Return the pipeline, as a file of its own or as one that is included.

    What the jobs share is in a hidden job, and the stages are those that GitLab has by itself, so they can stand beside jobs of
    other origin. Only the file of its own says which pipelines there are.
    """
    values = _values(plan, guarded=f":/{GITLAB_PIPELINE} :/.gitlab")
    path = plan.included if is_included else GITLAB_PIPELINE
    return {path: fill_template("gitlab.yml", **values, is_included=is_included)}


def _values(plan: PipelinePlan, *, guarded: str) -> dict[str, Any]:
    """What the holes are filled with; `guarded` are the files that a negotiation must not change."""
    build = _command("graphbus", "build", *plan.paths)
    return {
        **plan._asdict(),
        **_negotiation_values(plan.negotiation, plan),
        "prefix": plan.prefix,
        "title": f" {plan.name}" if plan.name else "",
        "suffix": f" ({plan.name})" if plan.name else "",
        "below": f"/{plan.name}" if plan.name else "",
        "base": BASES[plan.python],
        "context": _command(plan.folder or "."),
        "enter": _command("cd", plan.folder),
        "requirement_paths": plan.in_repository(*plan.requirements),
        "cache_keys": plan.in_repository(*plan.requirements[:2]),
        "prepared": plan.in_repository(".dockerignore", ".graphbus", "Dockerfile", "docker"),
        "results": plan.in_repository("negotiation.bundle", "graphbus-report.html"),
        "install": "\n".join((_pip_install(plan), *plan.installs, "graphbus --version")),
        "check": _command("graphbus", "check", *plan.paths),
        "build": build,
        "contract": _command("graphbus", "contract", *plan.paths),
        "test": _command(*plan.test),
        "prove": fill_template("prove.sh", build=build),
        "pack": fill_template("pack.sh"),
        "unpack": fill_template("unpack.sh", guarded=guarded),
    }


def _pip_install(plan: PipelinePlan) -> str:
    """Return the lines that install what the jobs need; of a project without requirements what its pyproject.toml lists now."""
    if plan.requirements == (PROJECT_FILE,):
        words = ("pytest" if "pytest" in plan.test else "", plan.wheel and relpath(plan.wheel, plan.folder or "."))
        return fill_template("pyproject.sh", words="".join(f" {shlex.quote(word)}" for word in words if word)).rstrip()
    named = [word for name in plan.requirements for word in ("--requirement", name)]
    return _command("python", "-m", "pip", "install", "--require-hashes" if plan.has_hashes else "", *named)


def _negotiation_values(negotiation: NegotiationJob | None, plan: PipelinePlan) -> dict[str, Any]:
    if negotiation is None:
        return {"has_negotiation": False}
    model = ("--model", negotiation.model) if negotiation.model else ()
    words = (*plan.paths, *model, "--max-usd", format_usd(negotiation.max_usd), "--commit")
    keys = negotiation.keys
    return {
        "has_negotiation": True,
        "cron": negotiation.cron,
        "negotiate": _command("graphbus", "negotiate", *words),
        "keys": keys,
        "held": f"holds {' and '.join(keys)}, protected and masked" if keys else "no key is needed",
        "secrets": tuple(f'{name}: "${{{{ secrets.{name} }}}}"  # of the environment' for name in keys),
    }


def _command(*words: str) -> str:
    """Quote words as a line of bash; empty ones are left out."""
    return shlex.join(word for word in words if word)


def format_usd(usd: float) -> str:
    """Return dollars as an option takes them, to the last digit."""
    return f"{usd:.6f}".rstrip("0").rstrip(".")


def check_ref_name(value: str, kind: Literal["branch", "environment"]) -> str:
    """Return the value if it is the name of one branch, and no pattern, or of an environment as both forges take it.

    Raises:
        DeployError: GBE703.
    """
    pattern, reason, example = _NAMES[kind]
    if not pattern.fullmatch(value):
        raise invalid_value(value, f"{kind} name", reason, example)
    return value


def check_script_text(value: str, kind: str) -> str:
    """Return the value if it can stand in a script: one line, and nothing that a forge would put a value into.

    Raises:
        DeployError: GBE737.
    """
    if not _PLAIN.fullmatch(value) or (kind != "command" and _PATTERN.search(value)):
        raise DeployError("GBE737", value=repr(value), kind=kind)
    return value


def check_cron(value: str) -> str:
    """Return the five fields, with one space between them.

    Raises:
        DeployError: GBE703.
    """
    fields = value.split()
    if len(fields) != 5 or not all(map(_CRON_FIELD.fullmatch, fields)):
        raise invalid_value(
            value, "schedule", "it must have five fields: minute, hour, day, month and day of the week", "23 4 * * 1"
        )
    return " ".join(fields)
