"""`graphbus ci`: write the pipeline of GitHub or GitLab, which checks each pull request and ships the main branch."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, get_args

import click

import graphbus_core
from graphbus_core import store
from graphbus_core.cli import console, shipping, wheel
from graphbus_core.cli.shipping import run_captured, text_of
from graphbus_core.deploy.image import read_entries
from graphbus_core.deploy.names import check_label, choose_python, invalid_value, make_label
from graphbus_core.deploy.pipelines import (
    GITLAB_MARK,
    GITLAB_PIPELINE,
    PROJECT_FILE,
    Forge,
    NegotiationJob,
    PipelinePlan,
    check_cron,
    check_ref_name,
    check_script_text,
    format_usd,
    generate_github,
    generate_gitlab,
)
from graphbus_core.errors import DeployError, GraphBusError, Place, UsageError
from graphbus_core.llm.providers import COMMAND, KNOWN, RULES, parse_model, providers_of
from graphbus_core.model.config import LLMConfig
from graphbus_core.settings import find_root, load, project_table

_USUAL = ("requirements.txt", "requirements-dev.txt")
_OURS = re.compile(r"graphbus\s*(?:\[[^]]*\]\s*)?@", re.IGNORECASE)
_FOREIGN = re.compile(r"graphbus\s*(?:\[[^]]*\]\s*)?(?:$|[=<>!~;])", re.IGNORECASE)
_INCLUDE = re.compile(r"(?:-r|--requirement)[\s=]*(\S+)")
_FORGES: tuple[Forge, ...] = get_args(Forge)
_CRON = "23 4 * * 1"
_MAX_USD = 5.0
_SHOWN = (
    *("paths", "requirements", "installs", "python", "branch", "environment", "schedule", "model", "max_usd", "name"),
    *("has_image", "has_deploy", "has_negotiation"),
)
"""The parameters in the order in which the command is shown again."""


@click.command("ci", short_help="Write the pipeline of GitHub or GitLab.", no_args_is_help=True)
@click.argument("forge", metavar="github|gitlab", type=click.Choice(_FORGES))
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option(
    "--requirements", "-r", multiple=True, metavar="FILE",
    help="What the jobs install, GraphBus among it; may be repeated (requirements.txt and requirements-dev.txt, else "
    "what pyproject.toml lists, and the GraphBus that is installed here).",
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
@shipping.writing_options
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
    wish = shipping.WriteOptions(**{name: given.pop(name) for name in shipping.WriteOptions._fields})
    alone = next((name for name in ("schedule", "model", "max_usd") if given[name] is not None), None)
    if alone and not given["has_negotiation"]:
        raise UsageError("GBE131", option=f"--{alone.replace('_', '-')}", needed="--negotiate")
    if given["max_usd"] is not None and not isfinite(given["max_usd"]):
        raise UsageError("GBE145", got=f"{given['max_usd']:g}")
    root = find_root([Path()])
    repository = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)
    top = repository or root
    plan = _plan(forge, given, root, top)
    if forge == "github":
        files = generate_github(plan)
    else:
        files = generate_gitlab(plan, is_included=bool(plan.folder) or _has_own_pipeline(top))
    files = {**files, **({plan.wheel: own_wheel()} if plan.wheel else {})}
    states = shipping.write_files(Path(output or os.path.relpath(top)), files, wish)
    if wish.as_json:
        facts = {"forge": forge, "command": plan.command, "python": plan.python, "branch": plan.branch}
        console.emit_json({**facts, "paths": plan.paths, "requirements": plan.requirements, "files": states})
    elif not wish.is_check:
        if repository is None:
            console.print_note("There is no git repository here: a forge reads these files from the top of one.")
        for line in _notes(forge, plan, is_included=plan.included in files):
            console.print_note(console.sanitize(line))
        if plan.wheel and _git(top, "check-ignore", plan.wheel):
            console.print_note(
                f"An ignore file of the project keeps the wheel out: take it in with `git add --force {plan.wheel}`."
            )


def _plan(forge: Forge, given: Mapping[str, Any], root: Path, top: Path) -> PipelinePlan:
    """Decide what goes into the pipeline; the project may lie below the top of its repository.

    Raises:
        DeployError: GBE703, GBE713, GBE736-739.
        UsageError: GBE101; what an unknown model and reading the settings raise.
    """
    settings = load(root)
    folder = check_script_text(root.relative_to(top).as_posix(), "path") if top != root else ""
    needs = _read_requirements(given["requirements"], root)
    test = tuple(check_script_text(word, "command") for word in settings.gate.test_command)
    plan = PipelinePlan(
        paths=_place_agents(given["paths"], root),
        requirements=needs.files,
        wheel=f".{forge}/graphbus/{wheel.wheel_name('graphbus')}" if needs.lacks_graphbus else "",
        has_hashes=needs.has_hashes,
        has_git=needs.has_git,
        installs=tuple(check_script_text(line, "command") for line in given["installs"]),
        test=test or PipelinePlan().test,
        python=choose_python(given["python"], text_of(project_table(root), "requires-python")),
        branch=check_ref_name(given["branch"] or _main_branch(top), "branch"),
        folder=folder,
        name=_name(given["name"], folder),
        has_image=given["has_image"],
        has_deploy=given["has_image"] and given["has_deploy"],
        environment=check_ref_name(given["environment"], "environment"),
        negotiation=_negotiation(given, settings.llm) if given["has_negotiation"] else None,
    )
    changed = {  # so that it writes the same again, wherever the artifacts of the last build are
        "paths": plan.paths,
        "requirements": plan.requirements if given["requirements"] else (),
        "branch": "" if plan.branch == PipelinePlan().branch else plan.branch,
        "max_usd": None if given["max_usd"] is None else format_usd(given["max_usd"]),
    }
    shown = {name: changed.get(name, given[name]) for name in _SHOWN}
    return plan._replace(command=shipping.command_line(f"graphbus ci {forge}", shown))


def _place_agents(named: Sequence[str], root: Path) -> tuple[str, ...]:
    """Return the paths with agents, relative to the project.

    Without a path: those of the last build, else `agents`, else all of the project.
    """
    missing = next((path for path in named if not Path(path).exists()), None)
    if missing is not None:
        raise UsageError("GBE101", path=missing)
    if named:
        return tuple(_below(Path(path), root) for path in named)
    try:
        manifest = store.load_manifest(root / ".graphbus")
        return tuple(check_script_text(path, "path") for path in manifest.roots)
    except GraphBusError:  # what an older version or half a build has left behind says nothing
        return ("agents",) if (root / "agents").is_dir() else ()


def _below(path: Path, root: Path) -> str:
    resolved = path.resolve()
    if not resolved.is_relative_to(root):
        raise DeployError("GBE737", value=repr(str(path)), kind="path")
    return check_script_text(resolved.relative_to(root).as_posix(), "path")


class _Needs(NamedTuple):
    """What the jobs install.

    Attributes:
        files: Where it is listed.
        has_hashes: Each line has a hash.
        has_git: Git has to fetch some of it.
        lacks_graphbus: The list does not say where to install GraphBus from.
    """

    files: tuple[str, ...]
    has_hashes: bool
    has_git: bool
    lacks_graphbus: bool


def _read_requirements(named: Sequence[str], root: Path) -> _Needs:
    """Find the files that say what the jobs install, and refuse a line that would install another package called graphbus.

    Raises:
        DeployError: GBE736, GBE737, GBE739.
    """
    usual = [root / name for name in _USUAL if (root / name).is_file()]
    if not usual:
        usual = [root / (PROJECT_FILE if (root / PROJECT_FILE).is_file() else _USUAL[0])]
    files = tuple(_below(path, root) for path in ([Path(name) for name in named] or usual))
    found = [entry for path in files for entry in _entries(root, path, set())]
    is_offline = any(text.startswith("--no-index") for _, text in found)
    for where, text in found:
        if _FOREIGN.match(text) and "--hash=" not in text and not is_offline:
            raise DeployError("GBE739", where=where)
    packages = [text for _, text in found if not text.startswith("-") or text.startswith(("-e", "--editable"))]
    has_hashes = bool(packages) and all("--hash=" in text for text in packages)
    lacks_graphbus = files == (PROJECT_FILE,) and not any(map(_OURS.match, packages))
    return _Needs(files, has_hashes, any("git+" in text for _, text in found), lacks_graphbus)


def _entries(root: Path, path: str, seen: set[str]) -> Iterator[tuple[Place, str]]:
    """Yield each requirement or option of a file and of those that it includes, with its line."""
    if path in seen:
        return
    seen.add(path)
    if path == PROJECT_FILE:
        yield from ((Place(path), text) for text in _dependencies(root))
        return
    try:
        text = (root / path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise _no_graphbus(path) from None
    for number, entry in read_entries(text):
        included = _INCLUDE.match(entry)
        if included:
            yield from _entries(root, Path(os.path.normpath(Path(path).parent / included[1])).as_posix(), seen)
        else:
            yield Place(path, number), entry


def _dependencies(root: Path) -> Iterator[str]:
    """Yield what the dependencies and the group `dev` of a pyproject.toml list, as the jobs read it."""
    read = tomllib.loads((root / PROJECT_FILE).read_text(encoding="utf-8"))
    listed = [read.get("project", {}).get("dependencies", []), read.get("dependency-groups", {}).get("dev", [])]
    yield from (text.strip() for each in listed for text in each if isinstance(text, str))


def _no_graphbus(path: str) -> DeployError:
    return DeployError("GBE736", path=path, wheel=f"wheels/{wheel.wheel_name('graphbus')}", file=shlex.quote(path))


def own_wheel() -> bytes:
    """Return a wheel of the GraphBus that is running, as bytes.

    Raises:
        DeployError: GBE736 if it is not installed, so that its requirements are unknown.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    top = Path(graphbus_core.__file__).parent
    try:
        installed = distribution("graphbus")
    except PackageNotFoundError:
        raise _no_graphbus(_USUAL[0]) from None
    about = {name: installed.read_text(name) or "" for name in ("METADATA", "entry_points.txt")}
    paths = [path.relative_to(top.parent) for path in top.rglob("*") if path.is_file()]
    kept = [path for path in paths if not any(part.startswith((".", "__pycache__")) for part in path.parts[:-1])]
    return wheel.pack_wheel("graphbus", {path.as_posix(): (top.parent / path).read_bytes() for path in kept}, about)


def _main_branch(top: Path) -> str:
    """Return the branch to ship from: main, or the default branch of the repository if it has no main."""
    listed = _git(top, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads", "refs/remotes").split()
    if "main" in listed or "origin/main" in listed:
        return "main"
    named = _git(top, "symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD").removeprefix("origin/")
    if not listed:  # nothing is committed yet
        named = _git(top, "symbolic-ref", "--quiet", "--short", "HEAD")
    return named or ("master" if "master" in listed else "main")


def _git(top: Path, *arguments: str) -> str:
    """Return the output of git; empty if git fails or is not installed."""
    return run_captured(["git", *arguments], top).text.strip()


def _name(wanted: str, folder: str) -> str:
    """Return the name used for files, jobs and image of a project; `""` if the project is its whole repository."""
    if wanted:
        return check_label(wanted, "project name")
    name = make_label(Path(folder).name)
    if folder and not name:
        reason = f"no character of the folder {folder} can be used in the name of a job; pass a name with --name"
        raise invalid_value(folder, "project name", reason, "--name shop")
    return name


def _negotiation(given: Mapping[str, Any], config: LLMConfig) -> NegotiationJob:
    providers = providers_of(config)
    settled = [text for text in (config.model, config.proposer, config.evaluator, config.arbiter) if text]
    model = given["model"] or ("" if settled else f"anthropic:{KNOWN['anthropic'].default_model}")
    specs = [parse_model(text, providers) for text in dict.fromkeys([model] if model else settled)]
    keys = [providers[spec.provider].key_env for spec in specs if spec.provider in providers]
    if any(spec.provider == COMMAND for spec in specs):
        keys += config.pass_env
    for name in filter(None, keys):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise DeployError("GBE737", value=repr(name), kind="variable")
    return NegotiationJob(
        cron=check_cron(given["schedule"] or _CRON),
        model=check_script_text(model if model == RULES else str(specs[0]), "command") if model else "",
        keys=tuple(dict.fromkeys(filter(None, keys))),
        max_usd=_MAX_USD if given["max_usd"] is None else given["max_usd"],
    )


def _has_own_pipeline(top: Path) -> bool:
    """True if the repository has a pipeline that GraphBus did not write."""
    try:
        return GITLAB_MARK not in (top / GITLAB_PIPELINE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _notes(forge: Forge, plan: PipelinePlan, *, is_included: bool) -> Iterator[str]:
    """Yield the remaining steps for the user."""
    is_github = forge == "github"
    if plan.wheel:
        yield f"The jobs install GraphBus from {plan.wheel}, made of the one that runs here: commit it with the pipeline."
    if not plan.has_hashes:
        yield f"{', '.join(plan.requirements)}: not all have hashes, so that an index decides what is installed."
    if is_included:
        yield f"Add to {GITLAB_PIPELINE}:\n\n  include:\n    - local: {plan.included}\n"
    if plan.has_image and not is_github:
        yield "To build the image: give the project a privileged runner, for Docker in Docker."
    if plan.has_deploy:
        secret = "the secret KUBECONFIG" if is_github else "the variable KUBECONFIG, of type file"
        yield (
            f"To deploy: commit k8s/ (`graphbus k8s generate`), give the environment {plan.environment} {secret}, "
            f"then set the variable GRAPHBUS_DEPLOY to true."
        )
    if plan.negotiation:
        held = (
            f"give the environment negotiation {' and '.join(plan.negotiation.keys)}; " if plan.negotiation.keys else ""
        )
        start = "let Actions create pull requests (Settings > Actions > General)."
        if not is_github:
            start = (
                "give the environment proposal GRAPHBUS_PUSH_TOKEN; make a pipeline schedule "
                f"({plan.negotiation.cron}) with the variable GRAPHBUS_NEGOTIATE = true."
            )
        yield f"To negotiate: {held}{start}"
