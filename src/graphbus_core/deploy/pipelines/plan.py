"""What a pipeline is made from, and the checks that nothing passes which a shell or a forge would take for something else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from graphbus_core.deploy.image.bases import BASES, DEFAULT, choose_base
from graphbus_core.errors import DeployError

_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(?:/[A-Za-z0-9_][A-Za-z0-9._-]*)*")
_ENVIRONMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./ -]{0,62}")
_PATTERN = re.compile(r"[*?\[\]{}$\\]|^[-#!~\s]|\s$")
"""What one of the forges reads as a pattern, a variable or a comment where a path is expected."""
_PLAIN = re.compile(r"(?:(?!\$\{\{)[^\x00-\x1f\x7f-\x9f\u2028\u2029])+")
_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    ("day of the week", 0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)


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
    python: str = DEFAULT
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
    """Give the value back when it is the name of one branch, and no pattern.

    Raises:
        DeployError: GBE703.
    """
    is_other = value == "HEAD" or value.startswith("refs/") or value.endswith((".", ".lock")) or ".." in value
    if not _BRANCH.fullmatch(value) or is_other or len(value) > 200:
        reason = "it may have letters, digits, dots, hyphens and `_`, in parts with / between them"
        raise DeployError("GBE703", value=repr(value), kind="name of a branch", reason=reason, example="main")
    return value


def check_environment(value: str) -> str:
    """Give the value back when both forges take it as the name of an environment.

    Raises:
        DeployError: GBE703.
    """
    if not _ENVIRONMENT.fullmatch(value) or value.endswith(" "):
        reason = "it may have letters, digits, spaces, slashes, dots, hyphens and `_`"
        raise DeployError(
            "GBE703", value=repr(value), kind="name of an environment", reason=reason, example="production"
        )
    return value


def check_plain(value: str, kind: str) -> str:
    """Give the value back when it can stand in a script: one line, and nothing that a forge would put a value into.

    Raises:
        DeployError: GBE737.
    """
    if not _PLAIN.fullmatch(value) or (kind != "command" and _PATTERN.search(value)):
        raise DeployError("GBE737", value=repr(value), kind=kind)
    return value


def check_cron(value: str) -> str:
    """Give the five fields back, with one space between them.

    Raises:
        DeployError: GBE703.
    """
    fields = value.split()
    if len(fields) != len(_FIELDS):
        raise _no_cron(value, f"it has {len(fields)} fields, not {len(_FIELDS)}")
    for field, (name, least, most, words) in zip(fields, _FIELDS, strict=True):
        for part in field.split(","):
            if not _is_part(part.lower(), least, most, words):
                raise _no_cron(value, f"{part!r} is no {name} ({least}-{most})")
    return " ".join(fields)


def _no_cron(value: str, reason: str) -> DeployError:
    return DeployError("GBE703", value=repr(value), kind="schedule", reason=reason, example="23 4 * * 1")


def _is_part(part: str, least: int, most: int, words: Sequence[str]) -> bool:
    """One of the parts of a field that commas separate: `*`, `5`, `1-5`, each with `/STEP` behind it."""
    span, has_step, step = part.partition("/")
    if has_step and not (step.isdecimal() and step.isascii() and 1 <= int(step) <= most):
        return False
    if span == "*":
        return True
    ends = [_number(end, least, words) for end in span.split("-", 1)]
    return all(least <= end <= most for end in ends) and ends == sorted(ends) and (len(ends) == 2 or not has_step)


def _number(text: str, least: int, words: Sequence[str]) -> int:
    if text in words:
        return words.index(text) + least
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 2 else -1


def choose_python(wanted: str, requires: str) -> str:
    """Give the minor version of Python that the jobs run: that of the image, unless another one is wanted.

    Args:
        wanted: The version that was asked for; empty: the one that images have.
        requires: `requires-python` of the project; empty: any.

    Raises:
        DeployError: GBE713 no version that there is an image of, GBE738 not one that the project allows.
    """
    if not wanted:
        return _version_of(choose_base("", requires))
    choose_base(wanted, "")
    try:
        return _version_of(choose_base("", f"{requires}, =={wanted}.*"))
    except DeployError:
        raise DeployError("GBE738", wanted=wanted, requires=requires) from None


def _version_of(image: str) -> str:
    return next(version for version, base in BASES.items() if base == image)
