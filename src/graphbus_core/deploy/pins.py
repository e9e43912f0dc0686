"""What images and pipelines take from others, each by its digest, because a tag can be moved; with the version for people.

A bot for updates (Dependabot, Renovate) reads both and moves them together. Every action here, with its commit, was found in
several independent public repositories.
"""

from __future__ import annotations

import operator
import re

from graphbus_core.deploy.names import check_image
from graphbus_core.deploy.yaml import Noted
from graphbus_core.errors import DeployError

BASES = {
    "3.11": "docker.io/library/python:3.11.17-slim-trixie"
    "@sha256:45037981b62b34b44602584fccbc4d884d5f7dc92c7ee86bb38a698a79fe1e51",
    "3.12": "docker.io/library/python:3.12.14-slim-trixie"
    "@sha256:f77ac9e44ae96ef2c90b8053ea08c31f8be030f824196b0ae4db6d462c84e51f",
    "3.13": "docker.io/library/python:3.13.15-slim-trixie"
    "@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b",
    "3.14": "docker.io/library/python:3.14.7-slim-trixie"
    "@sha256:51dafde81dbdb6ebde285137a295cf18a47ca95234fe388a343719cb97305b3d",
}
"""Version of Python -> official image on Debian, by the digest of its index for all platforms; the oldest first."""
DEFAULT_PYTHON = "3.11"
"""The version that GraphBus itself is tested with; jobs of pipelines run it as well."""
RUNNER = "ubuntu-24.04"
"""Not `ubuntu-latest`, which becomes another system on a day that nobody here has chosen."""
DOCKER_CLIENT = "docker:29.8.1-cli@sha256:018edbc908e08fcc9dbf029c812c34251e9b4719e6f71ca0e5eae2a987d014ca"
DOCKER_ENGINE = "docker:29.8.1-dind@sha256:3f3c01aaaebf7cce837356b688b7c059a4749f10bd7660dec7c58fc454a283f0"
_ACTIONS = {
    "actions/checkout": ("3d3c42e5aac5ba805825da76410c181273ba90b1", "v7.0.1"),
    "actions/setup-python": ("5fda3b95a4ea91299a34e894583c3862153e4b97", "v7.0.0"),
    "actions/upload-artifact": ("043fb46d1a93c77aae656e7c1c64a875d1fc6a0a", "v7.0.1"),
    "actions/download-artifact": ("3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c", "v8.0.1"),
}
_CLAUSE = re.compile(r"(>=|<=|==|!=|~=|>|<)\s*([0-9]+(?:\.[0-9]+)*)(\.\*)?")
_COMPARE = {"==": operator.eq, ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}


def action(name: str) -> Noted:
    """Return what stands behind `uses:`."""
    commit, version = _ACTIONS[name]
    return Noted(f"{name}@{commit}", version)


def choose_python(wanted: str, requires_python: str) -> str:
    """Choose the minor version of Python for an image and for jobs.

    Args:
        wanted: The version that was asked for; empty: the default, or the oldest of `BASES` that the project allows.
        requires_python: `requires-python` of the project; empty: any. A clause that cannot be read asks for nothing.

    Raises:
        DeployError: GBE713 there is no image of it, GBE738 the project does not allow it.
    """
    if wanted and wanted not in BASES:
        raise DeployError("GBE713", version=wanted, known=", ".join(BASES))
    allowed = [version for version, image in BASES.items() if _allows(requires_python, image)]
    if wanted and wanted not in allowed:
        raise DeployError("GBE738", wanted=wanted, requires=requires_python)
    if not allowed:
        raise DeployError("GBE713", version=requires_python, known=", ".join(BASES))
    return wanted or (DEFAULT_PYTHON if DEFAULT_PYTHON in allowed else allowed[0])


def check_base(image: str, *, may_float: bool) -> str:
    """Return the image if it has a digest, so that it always is the same one.

    Raises:
        DeployError: GBE703 for what is no image, GBE712 for one without a digest.
    """
    check_image(image)
    if "@sha256:" not in image and not may_float:
        raise DeployError("GBE712", image=image)
    return image


def _allows(requires_python: str, image: str) -> bool:
    version = _numbers(image.partition(":")[2].partition("-")[0])
    clauses = (_CLAUSE.fullmatch(clause.strip()) for clause in requires_python.split(","))
    return all(_meets(version, found[1], _numbers(found[2]), bool(found[3])) for found in clauses if found)


def _meets(version: tuple[int, ...], sign: str, bound: tuple[int, ...], is_prefix: bool) -> bool:
    """Compare as PEP 440 says: `== 3.12.*` compares the first two numbers, `~= 3.12` is at least that, with the same 3."""
    if sign == "!=":
        return not _meets(version, "==", bound, is_prefix)
    if sign == "~=":
        return version >= bound and version[: len(bound) - 1] == bound[:-1]
    return bool(_COMPARE[sign](version[: len(bound)] if is_prefix else version, bound))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))
