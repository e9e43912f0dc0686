"""The work of a pipeline, the same for every forge: jobs with their steps, each a piece of bash.

    on a pull request    check  build  frozen  contract  test         no secret, and a token that can only read
    on main              check  build  frozen  test  ->  image  ->  deploy
    on a schedule        negotiate  ->  propose

A step says by name which variables it needs; the forge says where each comes from. Nothing else of a forge gets into a script.
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
"""The variable that lets the deployment begin: before a cluster is there, main stays green."""
IMAGE = "GRAPHBUS_IMAGE"
"""The variable with the image that was pushed, by its digest; a name that no project has given to something else."""
_QUOTED_BASE = '"$GRAPHBUS_BASE"'


class Step(NamedTuple):
    """A piece of a job.

    Attributes:
        name: What it does.
        run: One line, or lines with a newline at the end of each.
        needs: The variables that the forge has to give.
        note: Why it is like this.
        key: By which other steps and jobs of GitHub read what it tells.
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
        note: What it proves or makes.
        minutes: When to give it up.
        programs: What the image of a bare Python lacks, by the names of Debian.
    """

    key: str
    name: str
    note: str
    minutes: int
    steps: tuple[Step, ...]
    programs: tuple[str, ...] = ()


def command(*words: str) -> str:
    """Give words as a line of bash."""
    return shlex.join(word for word in words if word)


def lines(*texts: str) -> str:
    """Give several lines of bash."""
    return "".join(f"{text}\n" for text in texts)


def amount(usd: float) -> str:
    """Give dollars as an option takes them, to the last digit."""
    return f"{usd:.6f}".rstrip("0").rstrip(".")


def install(plan: Plan) -> Step:
    """What makes GraphBus and the project's own packages available."""
    named = [word for name in plan.requirements for word in ("--requirement", name)]
    hashed = "--require-hashes" if plan.has_hashes else ""
    note = "" if plan.has_hashes else "Without hashes an index decides what is installed."
    first = command("python", "-m", "pip", "install", hashed, *named)
    return Step("Install", lines(first, *plan.installs, "graphbus --version"), note=note)


def verifying(plan: Plan, forge: Forge) -> tuple[Job, ...]:
    """The jobs that look at a change. They need no secret, run no model and write nothing back."""
    reporting = ("--format", "github") if forge == "github" else ()
    return (
        Job(
            "check",
            "Check",
            "Reads the agents and runs none of them: what does not fit together is shown at its line.",
            10,
            (Step("Check the agents", command("graphbus", "check", *plan.paths, *reporting)),),
        ),
        Job("build", "Build", "The static build: no model, no key, no network.", 10, _building(plan)),
        Job(
            "frozen",
            "Lock",
            "If a negotiation is committed: proof without a model that it covers the sources as they are.",
            10,
            (_frozen(plan),),
        ),
        Job(
            "contract",
            "Contracts",
            "Contracts and topics beside those of the target branch: what breaks, and for whom. A raised version allows it.",
            10,
            (_comparing(plan, reporting),),
            ("git",),
        ),
        Job("test", "Tests", "The project's own tests.", 20, (Step("Test", command(*plan.test)),)),
    )


def _building(plan: Plan) -> tuple[Step, ...]:
    verified = Step("Verify the artifacts", "graphbus validate")
    if plan.has_image:
        return preparing(plan)._replace(name="Build the graph, and what its image is made of"), verified
    return Step("Build the graph", command("graphbus", "build", *plan.paths)), verified


def _comparing(plan: Plan, reporting: Sequence[str]) -> Step:
    words = ("graphbus", "contract", *plan.paths, *reporting, "--allow-announced", "--against")
    return Step("Compare the contracts", lines(f"{command(*words)} {_QUOTED_BASE}"), ("GRAPHBUS_BASE",))


def _frozen(plan: Plan) -> Step:
    script = lines(
        f"if [ -f {LOCK} ]; then",
        f"  {command('graphbus', 'build', *plan.paths, '--frozen')}",
        "else",
        f'  echo "There is no {LOCK}: nothing was negotiated, and nothing is to be proved."',
        "fi",
    )
    return Step("Prove the lock", script)


def negotiating(plan: Plan, negotiation: Negotiation, told: str) -> tuple[Step, ...]:
    """Negotiate, and pack what came of it.

    Args:
        plan: The project.
        negotiation: Who negotiates, and for how much.
        told: A line that tells the forge that there is something to propose.
    """
    model = ["--model", negotiation.model] if negotiation.model else []
    words = [*model, "--max-usd", amount(negotiation.max_usd), "--commit"]
    packing = lines(
        f"if [ -f {LOCK} ]; then git add --force {LOCK}; fi",
        f'if git diff --cached --quiet && [ "$(git rev-parse HEAD)" = {_QUOTED_BASE} ]; then',
        '  echo "The agents have nothing to propose."',
        "  exit 0",
        "fi",
        'if ! git diff --cached --quiet; then git commit --quiet --message "Lock what the agents agreed on"; fi',
        f"graphbus report --output {REPORT} --force",
        f"git add --force {REPORT}",
        'git commit --quiet --message "Tell how the agents agreed"',
        f'git bundle create {BUNDLE} HEAD "^$GRAPHBUS_BASE"',
        *([told] if told else []),
    )
    identity = lines('git config user.name "$COMMITTER_NAME"', 'git config user.email "$COMMITTER_EMAIL"')
    return (
        Step("Say who commits", identity, ("COMMITTER_NAME", "COMMITTER_EMAIL")),
        Step("Negotiate", command("graphbus", "negotiate", *plan.paths, *words), negotiation.keys),
        Step("Pack the result", packing, ("GRAPHBUS_BASE",), key="pack"),
    )


def preparing(plan: Plan) -> Step:
    """What an image is built from, beside the sources."""
    script = lines(
        command("graphbus", "build", *plan.paths),
        "if [ ! -f Dockerfile ]; then graphbus docker build --no-build; fi",
    )
    return Step("Prepare the image", script, note="A Dockerfile that is committed is taken as it is.")


def deploying() -> str:
    """The line that gives the cluster the manifests as they are committed, with the image that was pushed."""
    return f'graphbus k8s deploy --yes --image "${IMAGE}"'


def unpacking(guarded: Sequence[str]) -> str:
    """The begin of `propose`: the commits are fetched, not applied, and those that change the pipeline itself are refused."""
    return lines(
        f'git fetch --quiet "$PWD/{BUNDLE}" HEAD',
        f"if ! git diff --quiet HEAD FETCH_HEAD -- {command(*guarded)}; then",
        '  echo "The negotiation has changed the pipeline itself; that is never proposed." >&2',
        "  exit 1",
        "fi",
    )
