"""What a pipeline is made from, and the checks that let nothing pass which a shell or a forge would take for something else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from graphbus_core.deploy.names import refusal
from graphbus_core.deploy.pins import DEFAULT_PYTHON
from graphbus_core.errors import DeployError

_BRANCH = re.compile(r"(?!HEAD$|refs/)[A-Za-z0-9_][A-Za-z0-9._-]*(?:/[A-Za-z0-9_][A-Za-z0-9._-]*)*(?<!\.)(?<!\.lock)")
_ENVIRONMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./ -]{0,62}(?<! )")
_PATTERN = re.compile(r"[*?\[\]{}$\\]|^[-#!~\s]|\s$")
"""What one of the forges reads as a pattern, a variable or a comment where a path is expected."""
_PLAIN = re.compile(r"(?:(?!\$\{\{)[^\x00-\x1f\x7f-\x9f\u2028\u2029])+")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
_PART = re.compile(r"(?:\*|([a-z0-9]+)(?:-([a-z0-9]+))?)(?:/([0-9]+))?")
"""One of the parts of a field that commas separate: `*`, `5`, `1-5`, each with `/STEP` behind it."""


class Negotiation(NamedTuple):
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


class Plan(NamedTuple):
    """Everything that a pipeline depends on.

    Attributes:
        command: What writes the same again.
        paths: Where the agents are, as the commands take them; empty: the working directory.
        requirements: Files with what the jobs install, GraphBus among it.
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
    negotiation: Negotiation | None = None

    @property
    def prefix(self) -> str:
        """How the names of its jobs and files begin, so that several projects of one repository have their own."""
        return f"graphbus-{self.name}" if self.name else "graphbus"


def check_branch(value: str) -> str:
    """Return the value if it is the name of one branch, and no pattern.

    Raises:
        DeployError: GBE703.
    """
    if not _BRANCH.fullmatch(value) or ".." in value or len(value) > 200:
        reason = "it may have letters, digits, dots, hyphens and `_`, in parts with / between them"
        raise refusal(value, "name of a branch", reason, "main")
    return value


def check_environment(value: str) -> str:
    """Return the value if both forges take it as the name of an environment.

    Raises:
        DeployError: GBE703.
    """
    if not _ENVIRONMENT.fullmatch(value):
        reason = "it may have letters, digits, spaces, slashes, dots, hyphens and `_`"
        raise refusal(value, "name of an environment", reason, "production")
    return value


def check_plain(value: str, kind: str) -> str:
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
    if len(fields) != len(_FIELDS):
        raise refusal(value, "schedule", f"it has {len(fields)} fields, not {len(_FIELDS)}", "23 4 * * 1")
    for field, (name, least, most, words) in zip(fields, _FIELDS, strict=True):
        for part in field.split(","):
            if not _is_part(part.lower(), least, most, words):
                raise refusal(value, "schedule", f"{part!r} is no {name} ({least}-{most})", "23 4 * * 1")
    return " ".join(fields)


def _is_part(part: str, least: int, most: int, words: Sequence[str]) -> bool:
    numbers = {text: number for number in range(least, most + 1) for text in (f"{number}", f"{number:02}")}
    numbers |= {word: number for number, word in enumerate(words, least)}
    found = _PART.fullmatch(part)
    if found is None:
        return False
    ends = [numbers.get(end, -1) for end in found.groups()[:2] if end]
    is_step = found[3] is None or (1 <= int(found[3]) <= most and len(ends) != 1)
    return is_step and -1 not in ends and ends == sorted(ends)
