"""The work of a pipeline, the same for every forge: jobs with their steps, each a piece of bash.

    on a pull request    check  build  frozen  contract  test         no secret, and a token that can only read
    on main              check  build  frozen  test  ->  image  ->  deploy
    on a schedule        negotiate  ->  propose

A step names the variables that it needs; the module of a forge says where each comes from. Nothing else of a forge gets into a
script.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Literal, NamedTuple

from graphbus_core.deploy.pipelines.plan import Negotiation, Plan

Forge = Literal["github", "gitlab"]

LOCK = ".graphbus/negotiation.lock"
REPORT = "graphbus-report.html"
BUNDLE = "negotiation.bundle"
SWITCH = "GRAPHBUS_DEPLOY"
"""The variable that enables the deployment: as long as there is no cluster, main stays green."""
IMAGE = "GRAPHBUS_IMAGE"
"""The variable with the image that was pushed, by its digest."""


class Step(NamedTuple):
    """A piece of a job.

    Attributes:
        name: What it does.
        run: One line, or lines with a newline at the end of each.
        needs: The variables that the forge has to give.
        note: Why it is like this.
        key: The name by which other steps and jobs of GitHub read its outputs.
    """

    name: str
    run: str
    needs: tuple[str, ...] = ()
    note: str = ""
    key: str = ""


class Job(NamedTuple):
    """What runs on a machine of its own.

    Attributes:
        key: Its name in files.
        name: Its name for people.
        note: What it proves.
        minutes: When to give it up.
        steps: What it does, one after the other.
        programs: What the image of a bare Python lacks, by the names of Debian.
    """

    key: str
    name: str
    note: str
    minutes: int
    steps: tuple[Step, ...]
    programs: tuple[str, ...] = ()


def command(*words: str) -> str:
    """Quote words as a line of bash; empty ones are left out."""
    return shlex.join(word for word in words if word)


def lines(*texts: str) -> str:
    """Join several lines of bash."""
    return "".join(f"{text}\n" for text in texts)


def head(plan: Plan) -> str:
    """Return the comment that a pipeline begins with."""
    return f"Written by `{plan.command}`, which writes it again;\nwith --check it tells whether anything differs."


def install(plan: Plan) -> Step:
    """Make GraphBus and the project's own packages available."""
    named = [word for name in plan.requirements for word in ("--requirement", name)]
    first = command("python", "-m", "pip", "install", "--require-hashes" if plan.has_hashes else "", *named)
    note = "" if plan.has_hashes else "Without hashes an index decides what is installed."
    return Step("Install", lines(first, *plan.installs, "graphbus --version"), note=note)


def verifying(plan: Plan, forge: Forge) -> tuple[Job, ...]:
    """Return the jobs that look at a change. They need no secret, run no model and write nothing back."""
    reporting = ("--format", "github") if forge == "github" else ()
    check = Step("Check the agents", command("graphbus", "check", *plan.paths, *reporting))
    compare = command("graphbus", "contract", *plan.paths, *reporting, "--allow-announced", "--against")
    contract = Step("Compare the contracts", lines(f'{compare} "$GRAPHBUS_BASE"'), ("GRAPHBUS_BASE",))
    reads = "Reads the agents and runs none of them: what does not fit together is shown at its line."
    proves = "If a negotiation is committed: proof without a model that it covers the sources as they are."
    compares = (
        "Contracts and topics beside those of the target branch: what breaks, and for whom. A raised version allows it."
    )
    return (
        Job("check", "Check", reads, 10, (check,)),
        Job("build", "Build", "The static build: no model, no key, no network.", 10, _building(plan)),
        Job("frozen", "Lock", proves, 10, (_proving(plan),)),
        Job("contract", "Contracts", compares, 10, (contract,), ("git",)),
        Job("test", "Tests", "The project's own tests.", 20, (Step("Test", command(*plan.test)),)),
    )


def _building(plan: Plan) -> tuple[Step, ...]:
    build = Step("Build the graph", command("graphbus", "build", *plan.paths))
    if plan.has_image:
        build = preparing(plan)._replace(name="Build the graph, and what its image is made of")
    return build, Step("Verify the artifacts", "graphbus validate")


def _proving(plan: Plan) -> Step:
    script = lines(
        f"if [ -f {LOCK} ]; then",
        f"  {command('graphbus', 'build', *plan.paths, '--frozen')}",
        "else",
        f'  echo "There is no {LOCK}: nothing was negotiated, and nothing is to be proved."',
        "fi",
    )
    return Step("Prove the lock", script)


def negotiating(plan: Plan, negotiation: Negotiation, *announcement: str) -> tuple[Step, ...]:
    """Negotiate, and pack the commits that came of it.

    Args:
        plan: The project.
        negotiation: Who negotiates, and for how much.
        announcement: Lines that make known to the forge that there is something to propose.
    """
    model = ("--model", negotiation.model) if negotiation.model else ()
    words = (*plan.paths, *model, "--max-usd", amount(negotiation.max_usd), "--commit")
    identity = lines('git config user.name "$COMMITTER_NAME"', 'git config user.email "$COMMITTER_EMAIL"')
    packing = lines(
        f"if [ -f {LOCK} ]; then git add --force {LOCK}; fi",
        'if git diff --cached --quiet && [ "$(git rev-parse HEAD)" = "$GRAPHBUS_BASE" ]; then',
        '  echo "The agents have nothing to propose."',
        "  exit 0",
        "fi",
        'if ! git diff --cached --quiet; then git commit --quiet --message "Lock what the agents agreed on"; fi',
        f"graphbus report --output {REPORT} --force",
        f"git add --force {REPORT}",
        'git commit --quiet --message "Tell how the agents agreed"',
        f'git bundle create {BUNDLE} HEAD "^$GRAPHBUS_BASE"',
        *announcement,
    )
    return (
        Step("Say who commits", identity, ("COMMITTER_NAME", "COMMITTER_EMAIL")),
        Step("Negotiate", command("graphbus", "negotiate", *words), negotiation.keys),
        Step("Pack the result", packing, ("GRAPHBUS_BASE",), key="pack"),
    )


def amount(usd: float) -> str:
    """Return dollars as an option takes them, to the last digit."""
    return f"{usd:.6f}".rstrip("0").rstrip(".")


def preparing(plan: Plan) -> Step:
    """Make what an image is built from, beside the sources."""
    script = lines(
        command("graphbus", "build", *plan.paths),
        "if [ ! -f Dockerfile ]; then graphbus docker build --no-build; fi",
    )
    return Step("Prepare the image", script, note="A Dockerfile that is committed is taken as it is.")


def deploying() -> str:
    """Return the line that applies the manifests as they are committed, with the image that was pushed."""
    return f'graphbus k8s deploy --yes --image "${IMAGE}"'


def unpacking(guarded: Sequence[str]) -> str:
    """Begin `propose`: the commits are fetched, not applied; those that change the guarded files of the pipeline are refused."""
    return lines(
        f'git fetch --quiet "$PWD/{BUNDLE}" HEAD',
        f"if ! git diff --quiet HEAD FETCH_HEAD -- {command(*guarded)}; then",
        '  echo "The negotiation has changed the pipeline itself; that is never proposed." >&2',
        "  exit 1",
        "fi",
    )
