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

_REQUIREMENT_FILES = ("requirements.txt", "requirements-dev.txt")
# `graphbus @ URL` says where GraphBus comes from; with only a version, an index may have another package of that name.
_WITH_ADDRESS = re.compile(r"graphbus\s*(?:\[[^]]*\]\s*)?@", re.IGNORECASE)
_FROM_INDEX = re.compile(r"graphbus\s*(?:\[[^]]*\]\s*)?(?:$|[=<>!~;])", re.IGNORECASE)
_INCLUDE = re.compile(r"(?:-r|--requirement)[\s=]*(\S+)")
_FORGES: tuple[Forge, ...] = get_args(Forge)
_CRON = "23 4 * * 1"
_MAX_USD = 5.0
_COMMAND_PARAMETERS = (
    *("paths", "requirements", "installs", "python", "branch", "environment", "schedule", "model", "max_usd", "name"),
    *("has_image", "has_deploy", "has_negotiation"),
)
"""The parameters in their order in the command that the written files quote."""


@click.command("ci", short_help="Write the pipeline of GitHub or GitLab.", no_args_is_help=True)
@click.argument("forge", metavar="github|gitlab", type=click.Choice(_FORGES))
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option(
    "--requirements", "-r", multiple=True, metavar="FILE",
    help="A requirements file that the jobs install, GraphBus included; may be repeated (requirements.txt and "
    "requirements-dev.txt, else the dependencies in pyproject.toml and the GraphBus that is installed here).",
)  # fmt: skip
@click.option(
    "--install", "installs", multiple=True, metavar="COMMAND", help="Run this after the installation; may be repeated."
)
@click.option("--python", default="", metavar="VERSION", help="The Python of the jobs (that of the image).")
@click.option(
    "--branch",
    default="",
    metavar="NAME",
    help="The branch to ship from (main, or the default branch of the repository).",
)
@click.option("--environment", default="production", metavar="NAME", help="The environment to deploy to (production).")
@click.option("--no-image", "has_image", flag_value=False, default=True, help="Build no image, and deploy nothing.")
@click.option("--no-deploy", "has_deploy", flag_value=False, default=True, help="Build the image, and deploy nothing.")
@click.option(
    "--negotiate", "has_negotiation", is_flag=True,
    help="Let the agents negotiate on a schedule; the result comes as a pull request.",
)  # fmt: skip
@click.option("--schedule", metavar="CRON", help=f"With --negotiate: when, in UTC ({_CRON}).")
@click.option("--model", metavar="MODEL", help="With --negotiate: the model (that of the settings).")
@click.option(
    "--max-usd",
    type=click.FloatRange(min=0),
    metavar="USD",
    help=f"With --negotiate: the most that a run may cost ({_MAX_USD:g}).",
)
@click.option(
    "--name",
    default="",
    metavar="NAME",
    help="The name in files and jobs, if the repository has several projects (its folder).",
)
@click.option("--output", "-o", default="", metavar="DIR", help="The folder to write to (the top of the repository).")
@shipping.writing_options
def ci(*, forge: Forge, output: str, **options: Any) -> None:
    """Write the pipeline of GitHub or GitLab: the jobs for each pull request, and for each commit on main.

    Pull requests: check and build the agents, verify the lock of a negotiation, compare the contracts with the target branch,
    run the tests; no secret is used. On main: the same, then build and deploy the image. PATH is where the agents are; without
    it, where the last build found them, or agents/. A file with other content is overwritten only with --force. If you have a
    .gitlab-ci.yml of your own, the jobs are written to a file that it can include.

    Exit status: 0 written; 2 wrong usage; 8 a value is refused, a file exists already or, with --check, is out of date.

    \b
    Examples:
      graphbus ci github
      graphbus ci gitlab agents/ --python 3.12
      graphbus ci github --negotiate --schedule "23 4 * * 1" --max-usd 5
      graphbus ci github --no-deploy --install "pip install --no-deps -e ."
      graphbus ci github --check
    """
    write_options = shipping.WriteOptions(**{name: options.pop(name) for name in shipping.WriteOptions._fields})
    unused = next((name for name in ("schedule", "model", "max_usd") if options[name] is not None), None)
    if unused and not options["has_negotiation"]:
        raise UsageError("GBE131", option=f"--{unused.replace('_', '-')}", needed="--negotiate")
    if options["max_usd"] is not None and not isfinite(options["max_usd"]):
        raise UsageError("GBE145", got=f"{options['max_usd']:g}")
    root = find_root([Path()])
    repository = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)
    top = repository or root
    plan = _make_plan(forge, options, root, top)
    if forge == "github":
        files = generate_github(plan)
    else:
        files = generate_gitlab(plan, is_included=bool(plan.folder) or _has_own_pipeline(top))
    files = {**files, **({plan.wheel: own_wheel()} if plan.wheel else {})}
    states = shipping.write_files(Path(output or os.path.relpath(top)), files, write_options)
    if write_options.as_json:
        facts = {"forge": forge, "command": plan.command, "python": plan.python, "branch": plan.branch}
        console.emit_json({**facts, "paths": plan.paths, "requirements": plan.requirements, "files": states})
    elif not write_options.is_check:
        if repository is None:
            console.print_note(
                "There is no git repository here; GitHub and GitLab read these files only at the top of one."
            )
        for line in _next_steps(forge, plan, is_included=plan.included in files):
            console.print_note(console.sanitize(line))
        if plan.wheel and _git(top, "check-ignore", plan.wheel):
            console.print_note(f"Git ignores the wheel: add it with `git add --force {plan.wheel}`.")


def _make_plan(forge: Forge, options: Mapping[str, Any], root: Path, top: Path) -> PipelinePlan:
    """Return the plan of the pipeline. `top` is the top of the repository, `root` the project, which may be a folder below it.

    Raises:
        DeployError: GBE703 or GBE737, a value cannot be used in a pipeline; GBE713 or GBE738, the version of Python; GBE736 or
            GBE739, the requirements.
        UsageError: GBE101, a path does not exist; the model is unknown, or the settings cannot be read.
    """
    settings = load(root)
    folder = check_script_text(root.relative_to(top).as_posix(), "path") if top != root else ""
    needs = _read_requirements(options["requirements"], root)
    test = tuple(check_script_text(word, "command") for word in settings.gate.test_command)
    plan = PipelinePlan(
        paths=_find_agent_paths(options["paths"], root),
        requirements=needs.files,
        wheel=f".{forge}/graphbus/{wheel.wheel_name('graphbus')}" if needs.lacks_graphbus else "",
        has_hashes=needs.has_hashes,
        has_git=needs.has_git,
        installs=tuple(check_script_text(line, "command") for line in options["installs"]),
        test=test or PipelinePlan().test,
        python=choose_python(options["python"], text_of(project_table(root), "requires-python")),
        branch=check_ref_name(options["branch"] or _main_branch(top), "branch"),
        folder=folder,
        name=_project_name(options["name"], folder),
        has_image=options["has_image"],
        has_deploy=options["has_image"] and options["has_deploy"],
        environment=check_ref_name(options["environment"], "environment"),
        has_ledger=bool(settings.runtime.ledger),
        negotiation=_plan_negotiation(options, settings.llm) if options["has_negotiation"] else None,
    )
    changed = {  # paths that were found are written out: the command then gives the same files without artifacts
        "paths": plan.paths,
        "requirements": plan.requirements if options["requirements"] else (),
        "branch": "" if plan.branch == PipelinePlan().branch else plan.branch,
        "max_usd": None if options["max_usd"] is None else format_usd(options["max_usd"]),
    }
    shown = {name: changed.get(name, options[name]) for name in _COMMAND_PARAMETERS}
    return plan._replace(command=shipping.command_line(f"graphbus ci {forge}", shown))


def _find_agent_paths(paths_given: Sequence[str], root: Path) -> tuple[str, ...]:
    """Return the paths with agents, relative to the project.

    Without a path: those of the last build, else `agents`, else none, which means the whole project.

    Raises:
        UsageError: GBE101, a path does not exist.
        DeployError: GBE737, a path is outside the project or cannot be written into a script.
    """
    missing = next((path for path in paths_given if not Path(path).exists()), None)
    if missing is not None:
        raise UsageError("GBE101", path=missing)
    if paths_given:
        return tuple(_path_in_project(Path(path), root) for path in paths_given)
    try:
        manifest = store.load_manifest(root / ".graphbus")
        return tuple(check_script_text(path, "path") for path in manifest.roots)
    except GraphBusError:  # no build, or artifacts that are incomplete or of an older version
        return ("agents",) if (root / "agents").is_dir() else ()


def _path_in_project(path: Path, root: Path) -> str:
    """Return the path relative to the project; raise GBE737 if it is outside, or cannot be written into a script."""
    resolved = path.resolve()
    if not resolved.is_relative_to(root):
        advice = "Pass a path inside the project."
        raise DeployError("GBE737", value=repr(str(path)), kind="path", advice=advice)
    return check_script_text(resolved.relative_to(root).as_posix(), "path")


class _Requirements(NamedTuple):
    """The requirements that the jobs install.

    Attributes:
        files: The files that list them.
        has_hashes: Each requirement has a hash.
        has_git: Some are installed from a git repository.
        lacks_graphbus: They come from pyproject.toml and do not say where to install GraphBus from.
    """

    files: tuple[str, ...]
    has_hashes: bool
    has_git: bool
    lacks_graphbus: bool


def _read_requirements(paths_given: Sequence[str], root: Path) -> _Requirements:
    """Find and read the requirements; refuse a line by which an index could install another package called graphbus.

    Raises:
        DeployError: GBE736, a file cannot be read; GBE737, its path cannot be used; GBE739, the refused line.
    """
    usual = [root / name for name in _REQUIREMENT_FILES if (root / name).is_file()]
    if not usual:
        usual = [root / (PROJECT_FILE if (root / PROJECT_FILE).is_file() else _REQUIREMENT_FILES[0])]
    files = tuple(_path_in_project(path, root) for path in ([Path(name) for name in paths_given] or usual))
    found = [entry for path in files for entry in _walk_entries(root, path, set())]
    is_offline = any(text.startswith("--no-index") for _, text in found)
    for where, text in found:
        if _FROM_INDEX.match(text) and "--hash=" not in text and not is_offline:
            raise DeployError("GBE739", where=where)
    packages = [text for _, text in found if not text.startswith("-") or text.startswith(("-e", "--editable"))]
    has_hashes = bool(packages) and all("--hash=" in text for text in packages)
    lacks_graphbus = files == (PROJECT_FILE,) and not any(map(_WITH_ADDRESS.match, packages))
    return _Requirements(files, has_hashes, any("git+" in text for _, text in found), lacks_graphbus)


def _walk_entries(root: Path, path: str, seen: set[str]) -> Iterator[tuple[Place, str]]:
    """Yield each requirement or option of a file, and of the files that it includes, with its place.

    Files in `seen` are skipped; each file that is read is added to it. Raises GBE736 for a file that cannot be read.
    """
    if path in seen:
        return
    seen.add(path)
    if path == PROJECT_FILE:
        yield from ((Place(path), text) for text in _project_dependencies(root))
        return
    try:
        text = (root / path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise _missing_graphbus_error(path) from None
    for number, entry in read_entries(text):
        included = _INCLUDE.match(entry)
        if included:
            yield from _walk_entries(root, Path(os.path.normpath(Path(path).parent / included[1])).as_posix(), seen)
        else:
            yield Place(path, number), entry


def _project_dependencies(root: Path) -> Iterator[str]:
    """Yield the requirements in `project.dependencies` and in the dependency group `dev` of pyproject.toml."""
    read = tomllib.loads((root / PROJECT_FILE).read_text(encoding="utf-8"))
    listed = [read.get("project", {}).get("dependencies", []), read.get("dependency-groups", {}).get("dev", [])]
    yield from (text.strip() for each in listed for text in each if isinstance(text, str))


def _missing_graphbus_error(path: str) -> DeployError:
    """Return GBE736 for a requirements file that cannot be read; its hint says how to write one that installs GraphBus."""
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
        raise _missing_graphbus_error(_REQUIREMENT_FILES[0]) from None
    about = {name: installed.read_text(name) or "" for name in ("METADATA", "entry_points.txt")}
    paths = [path.relative_to(top.parent) for path in top.rglob("*") if path.is_file()]
    kept = [path for path in paths if not any(part.startswith((".", "__pycache__")) for part in path.parts[:-1])]
    return wheel.pack_wheel("graphbus", {path.as_posix(): (top.parent / path).read_bytes() for path in kept}, about)


def _main_branch(top: Path) -> str:
    """Return the branch to ship from: main, or the default branch of the repository if it has no main."""
    branches = _git(top, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads", "refs/remotes").split()
    if "main" in branches or "origin/main" in branches:
        return "main"
    default = _git(top, "symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD").removeprefix("origin/")
    if not branches:  # nothing is committed yet
        default = _git(top, "symbolic-ref", "--quiet", "--short", "HEAD")
    return default or ("master" if "master" in branches else "main")


def _git(top: Path, *arguments: str) -> str:
    """Return the output of git; empty if git fails or is not installed."""
    return run_captured(["git", *arguments], top).text.strip()


def _project_name(requested: str, folder: str) -> str:
    """Return the name used for files, jobs and image of a project; `""` if the project is its whole repository."""
    if requested:
        return check_label(requested, "project name")
    name = make_label(Path(folder).name)
    if folder and not name:
        reason = f"no character of the folder {folder} can be used in the name of a job; pass a name with --name"
        raise invalid_value(folder, "project name", reason, "--name shop")
    return name


def _plan_negotiation(options: Mapping[str, Any], config: LLMConfig) -> NegotiationJob:
    """Return the scheduled job: its model from `--model`, else from the settings, else the default model of Anthropic.

    Its keys are the names of the variables that the chosen providers need.

    Raises:
        DeployError: GBE737 for a variable whose name is not valid.
    """
    providers = providers_of(config)
    settled = [text for text in (config.model, config.proposer, config.evaluator, config.arbiter) if text]
    model = options["model"] or ("" if settled else f"anthropic:{KNOWN['anthropic'].default_model}")
    specs = [parse_model(text, providers) for text in dict.fromkeys([model] if model else settled)]
    keys = [providers[spec.provider].key_env for spec in specs if spec.provider in providers]
    if any(spec.provider == COMMAND for spec in specs):
        keys += config.pass_env
    for name in filter(None, keys):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            advice = "Use a name of letters, digits and `_`, in `key_env` or `pass_env` of [tool.graphbus.llm]."
            raise DeployError("GBE737", value=repr(name), kind="variable", advice=advice)
    return NegotiationJob(
        cron=check_cron(options["schedule"] or _CRON),
        model=check_script_text(model if model == RULES else str(specs[0]), "command") if model else "",
        keys=tuple(dict.fromkeys(filter(None, keys))),
        max_usd=_MAX_USD if options["max_usd"] is None else options["max_usd"],
    )


def _has_own_pipeline(top: Path) -> bool:
    """True if the repository has a pipeline that GraphBus did not write."""
    try:
        return GITLAB_MARK not in (top / GITLAB_PIPELINE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _next_steps(forge: Forge, plan: PipelinePlan, *, is_included: bool) -> Iterator[str]:
    """Yield the remaining steps for the user."""
    is_github = forge == "github"
    if plan.wheel:
        yield f"The jobs install GraphBus from {plan.wheel}, a wheel of the GraphBus that runs here: commit it with the pipeline."
    if not plan.has_hashes:
        yield f"{', '.join(plan.requirements)}: not all requirements have hashes, so the package index decides what is installed."
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
        keys = (
            f"give the environment negotiation {' and '.join(plan.negotiation.keys)}; " if plan.negotiation.keys else ""
        )
        start = "let Actions create pull requests (Settings > Actions > General)."
        if not is_github:
            start = (
                "give the environment proposal GRAPHBUS_PUSH_TOKEN; make a pipeline schedule "
                f"({plan.negotiation.cron}) with the variable GRAPHBUS_NEGOTIATE = true."
            )
        yield f"To negotiate: {keys}{start}"
