"""`graphbus ci`: the pipeline of a forge, so that each pull request is proved and what main holds is shipped."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, get_args
from urllib.parse import unquote, urlsplit, urlunsplit

import click

from graphbus_core import __version__
from graphbus_core.cli import console
from graphbus_core.cli.shipping import writing
from graphbus_core.cli.shipping.programs import ask, text_of
from graphbus_core.deploy.image import entries
from graphbus_core.deploy.names import as_label, check_label, choose_python, refusal
from graphbus_core.deploy.pipelines import (
    GITLAB_MARK,
    GITLAB_PIPELINE,
    Forge,
    Negotiation,
    PipelinePlan,
    amount,
    check_branch,
    check_cron,
    check_environment,
    check_plain,
    generate_github,
    generate_gitlab,
)
from graphbus_core.deploy.render import Files
from graphbus_core.errors import DeployError, GraphBusError, Place, UsageError
from graphbus_core.llm.providers import COMMAND, KNOWN, RULES, parse, providers_of
from graphbus_core.model.config import LLMConfig, Settings
from graphbus_core.settings import find_root, load, project_table

_USUAL = (("requirements.txt", "requirements-dev.txt"), ("requirements/dev.txt",), ("dev/requirements.txt",))
_FOREIGN = re.compile(r"graphbus\s*(?:\[[^]]*\]\s*)?(?:$|[=<>!~;])", re.IGNORECASE)
_INCLUDE = re.compile(r"(?:-r|--requirement)[\s=]*(\S+)")


class Checkout(NamedTuple):
    """A project in its repository.

    Attributes:
        root: The project.
        top: The top of its repository; the project, if there is none.
        folder: The project below the top; `""`: it is the top.
        is_repository: There is one.
    """

    root: Path
    top: Path
    folder: str
    is_repository: bool
    settings: Settings
    requires_python: str


class Requirements(NamedTuple):
    """Files that say what is installed, whether each line of them has a hash, and whether git has to fetch some of it."""

    files: tuple[str, ...]
    has_hashes: bool
    has_git: bool


def _look_around() -> Checkout:
    """Find the project and its repository from the working directory.

    Raises:
        UsageError: What reading the settings raises.
    """
    root = find_root([Path()])
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)
    return Checkout(
        root=root,
        top=top or root,
        folder=check_plain(root.relative_to(top).as_posix(), "path") if top and top != root else "",
        is_repository=top is not None,
        settings=load(root),
        requires_python=text_of(project_table(root), "requires-python"),
    )


def _place_agents(named: Sequence[str], checkout: Checkout) -> tuple[str, ...]:
    """Return the paths with agents, relative to the project.

    Without a path: those of the last build, else `agents`, else all of the project.

    Raises:
        UsageError: GBE101.
        DeployError: GBE737.
    """
    if not named:
        return _built(checkout.root) or (("agents",) if (checkout.root / "agents").is_dir() else ())
    missing = next((path for path in named if not Path(path).exists()), None)
    if missing is not None:
        raise UsageError("GBE101", path=missing)
    return tuple(_below(Path(path), checkout.root) for path in named)


def _below(path: Path, root: Path) -> str:
    resolved = path.resolve()
    if not resolved.is_relative_to(root):
        raise DeployError("GBE737", value=repr(str(path)), kind="path")
    return check_plain(resolved.relative_to(root).as_posix(), "path")


def _built(root: Path) -> tuple[str, ...]:
    from graphbus_core import store

    if not (root / ".graphbus" / "manifest.json").is_file():
        return ()
    try:
        manifest = store.load(root / ".graphbus", without=("negotiations.json", "modified_files.json")).manifest
    except GraphBusError:
        return ()  # what an older version or half a build has left behind says nothing
    return tuple(check_plain(path, "path") for path in manifest.roots) if manifest else ()


def _read_requirements(named: Sequence[str], root: Path) -> Requirements:
    """Find the files that say what the jobs install, and refuse a line that would install another package called graphbus.

    Raises:
        DeployError: GBE736, GBE737, GBE739.
    """
    existing = (tuple(name for name in usual if (root / name).is_file()) for usual in _USUAL)
    paths = [Path(name) for name in named] or [root / name for name in next(filter(None, existing), _USUAL[0][:1])]
    files = tuple(_below(path, root) for path in paths)
    found = [entry for path in files for entry in _entries(root, path, set())]
    is_offline = any(text.startswith("--no-index") for _, text in found)
    for where, text in found:
        if _FOREIGN.match(text) and "--hash=" not in text and not is_offline:
            raise DeployError("GBE739", where=where)
    packages = [text for _, text in found if not text.startswith("-") or text.startswith(("-e", "--editable"))]
    has_hashes = bool(packages) and all("--hash=" in text for text in packages)
    return Requirements(files, has_hashes, any("git+" in text for _, text in found))


def _entries(root: Path, path: str, seen: set[str]) -> Iterator[tuple[Place, str]]:
    """Yield each requirement or option of a file and of those that it includes, with its line."""
    if path in seen:
        return
    seen.add(path)
    try:
        text = (root / path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise DeployError("GBE736", path=path, command=_advise(path)) from None
    for number, entry in entries(text):
        included = _INCLUDE.match(entry)
        if included:
            yield from _entries(root, Path(os.path.normpath(Path(path).parent / included[1])).as_posix(), seen)
        else:
            yield Place(path, number), entry


def _advise(path: str) -> str:
    """Return the command that writes a file with the GraphBus that is installed; `https://...` where its origin is unknown."""
    about = _installed_from()
    line = _requirement(about)
    folder = unquote(urlsplit(str(about.get("url", ""))).path) if "dir_info" in about else ""
    wheel = f"graphbus-{__version__}-py3-none-any.whl"
    if line or not folder:
        line = line or f"graphbus @ https://.../{wheel}"
        return f"printf '%s\\n' {shlex.quote(line)} pytest > {shlex.quote(path)}"
    made = shlex.join(["python", "-m", "pip", "wheel", "--no-deps", "--wheel-dir", "wheels", folder])
    return f"{made} && printf '%s\\n' ./wheels/{wheel} pytest > {shlex.quote(path)}"


def _installed_from() -> dict[str, Any]:
    """What pip has recorded (PEP 610): nothing for a package that came from an index."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = json.loads(distribution("graphbus").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _requirement(about: dict[str, Any]) -> str:
    """The line by which others can install the same; empty if its origin is this machine, or unknown.

    A password in the address would be committed, so it is left out.
    """
    parts = urlsplit(str(about.get("url", "")))
    user, _, host = parts.netloc.rpartition("@")
    kept = f"{user.partition(':')[0]}@" if parts.scheme == "ssh" and user else ""
    url = urlunsplit(parts._replace(netloc=f"{kept}{host}", fragment=""))
    if parts.scheme in ("https", "ssh") and "vcs_info" in about:
        return f"graphbus @ git+{url}@{about['vcs_info']['commit_id']}"
    if parts.scheme == "https":
        digest = about.get("archive_info", {}).get("hashes", {}).get("sha256")
        return f"graphbus @ {url}" + (f" --hash=sha256:{digest}" if digest else "")
    return ""


def _has_branch(top: Path, branch: str) -> bool:
    """False if the repository has branches, here or on a remote, and none of this name; true if that cannot be seen."""
    listed = _branches(top)
    return not listed or branch in listed


def _main_branch(top: Path) -> str:
    """Return the branch that is shipped from: main, unless the repository has none and calls another one its own."""
    listed = _branches(top)
    if "main" in listed:
        return "main"
    named = _git(top, "symbolic-ref", "--quiet", "refs/remotes/origin/HEAD").removeprefix("refs/remotes/origin/")
    if not listed:  # nothing is committed yet
        named = _git(top, "symbolic-ref", "--quiet", "HEAD").removeprefix("refs/heads/")
    return named or ("master" if "master" in listed else "main")


def _branches(top: Path) -> frozenset[str]:
    listed = _git(top, "for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes").split()
    return frozenset(re.sub(r"^refs/(?:heads|remotes/[^/]+)/", "", each) for each in listed)


def _git(top: Path, *arguments: str) -> str:
    """The output of git; empty if it fails or is not there."""
    return ask(["git", *arguments], top).text.strip()


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
    checkout = _look_around()
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


def make_plan(forge: Forge, options: Options, checkout: Checkout) -> PipelinePlan:
    """Decide what the pipeline is made from.

    Raises:
        DeployError: GBE703, GBE713, GBE736-739.
        UsageError: GBE101; what an unknown model raises.
    """
    requirements = _read_requirements(options.requirements, checkout.root)
    plan = PipelinePlan(
        paths=_place_agents(options.paths, checkout),
        requirements=requirements.files,
        has_hashes=requirements.has_hashes,
        has_git=requirements.has_git,
        installs=tuple(check_plain(line, "command") for line in options.installs),
        test=tuple(check_plain(word, "command") for word in checkout.settings.gate.test_command) or PipelinePlan().test,
        python=choose_python(options.python, checkout.requires_python),
        branch=check_branch(options.branch or _main_branch(checkout.top)),
        folder=checkout.folder,
        name=_name(options.name, checkout.folder),
        has_image=options.has_image,
        has_deploy=options.has_image and options.has_deploy,
        environment=check_environment(options.environment),
        negotiation=_negotiation(options, checkout.settings.llm) if options.has_negotiation else None,
    )
    return plan._replace(command=_command(forge, options, plan))


def _command(forge: Forge, options: Options, plan: PipelinePlan) -> str:
    """The command that writes the same again, wherever the artifacts of the last build are."""
    changed = {
        "paths": plan.paths,
        "requirements": plan.requirements if options.requirements else (),
        "branch": "" if plan.branch == PipelinePlan().branch else plan.branch,
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
    for name in filter(None, keys):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise DeployError("GBE737", value=repr(name), kind="variable")
    return Negotiation(
        cron=check_cron(options.schedule or _CRON),
        model=check_plain(model if model == RULES else str(specs[0]), "command") if model else "",
        keys=tuple(dict.fromkeys(filter(None, keys))),
        max_usd=_MAX_USD if options.max_usd is None else options.max_usd,
    )


def _files(forge: Forge, plan: PipelinePlan, top: Path) -> Files:
    if forge == "github":
        return generate_github(plan)
    return generate_gitlab(plan, is_included=bool(plan.folder) or _has_own_pipeline(top))


def _has_own_pipeline(top: Path) -> bool:
    """Is there a pipeline that was not written by us, or one that includes ours?"""
    try:
        return GITLAB_MARK not in (top / GITLAB_PIPELINE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _notes(forge: Forge, plan: PipelinePlan, checkout: Checkout, files: Files) -> Iterator[str]:
    """What is left to do."""
    if not checkout.is_repository:
        yield "There is no git repository here: a forge reads these files from the top of one."
    elif not _has_branch(checkout.top, plan.branch):
        yield f"The repository has no branch {plan.branch}: name the one that is shipped from with --branch."
    if not plan.has_hashes:
        yield f"{', '.join(plan.requirements)}: not all have hashes, so that an index decides what is installed."
    if plan.included in files:
        yield f"Add to {GITLAB_PIPELINE}:\n\n  include:\n    - local: {plan.included}\n"
    if plan.has_image and forge == "gitlab":
        yield "To build the image: give the project a privileged runner, for Docker in Docker."
    if plan.has_deploy:
        secret = "the secret KUBECONFIG" if forge == "github" else "the variable KUBECONFIG, of type file"
        yield (
            f"To deploy: commit k8s/ (`graphbus k8s generate`), give the environment {plan.environment} {secret}, "
            f"then set the variable GRAPHBUS_DEPLOY to true."
        )
    if plan.negotiation:
        keys = " and ".join(plan.negotiation.keys)
        held = f"give the environment negotiation {keys}; " if keys else ""
        yield f"To negotiate: {held}{_start(forge, plan.negotiation)}"


def _start(forge: Forge, negotiation: Negotiation) -> str:
    if forge == "github":
        return "let Actions create pull requests (Settings > Actions > General)."
    return (
        f"give the environment proposal GRAPHBUS_PUSH_TOKEN; "
        f"make a pipeline schedule ({negotiation.cron}) with the variable GRAPHBUS_NEGOTIATE = true."
    )
