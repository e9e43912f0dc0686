"""Images to build on: the official ones of Python on Debian, each pinned by the digest of its index for all platforms."""

from __future__ import annotations

import re

from graphbus_core.deploy.names import check_image
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
"""Version of Python -> image, the oldest first."""
DEFAULT = "3.11"
"""The version that GraphBus itself is tested with; jobs of pipelines run it as well."""
_CLAUSE = re.compile(r"(>=|<=|==|!=|~=|>|<)\s*([0-9]+(?:\.[0-9]+)*)(\.\*)?")
_VERSION = re.compile(r":([0-9.]+)-")


def choose_base(python: str, requires_python: str) -> str:
    """Give the image for a version of Python; for `""` the default, or what is nearest to it of what the project allows.

    Raises:
        DeployError: GBE713 when there is none, GBE738 when the project does not allow it.
    """
    if python:
        if python not in BASES:
            raise DeployError("GBE713", version=python, known=", ".join(BASES))
        if not _allows(requires_python, BASES[python]):
            raise DeployError("GBE738", wanted=python, requires=requires_python)
        return BASES[python]
    allowed = [version for version, image in BASES.items() if _allows(requires_python, image)]
    if not allowed:
        raise DeployError("GBE713", version=requires_python, known=", ".join(BASES))
    return BASES[DEFAULT if DEFAULT in allowed else allowed[0]]


def check_base(image: str, *, may_float: bool) -> str:
    """Give the image back when it always is the same one.

    Raises:
        DeployError: GBE703 for no image, GBE712 for one without a digest.
    """
    check_image(image)
    if "@sha256:" not in image and not may_float:
        raise DeployError("GBE712", image=image)
    return image


def _allows(requires_python: str, image: str) -> bool:
    """True when the Python of an image meets all clauses; one that cannot be read asks for nothing."""
    version = _numbers(_VERSION.findall(image)[0])
    clauses = (_CLAUSE.fullmatch(clause.strip()) for clause in requires_python.split(","))
    return all(_meets(version, found[1], _numbers(found[2]), bool(found[3])) for found in clauses if found)


def _meets(version: tuple[int, ...], sign: str, bound: tuple[int, ...], is_prefix: bool) -> bool:
    if sign == "~=":
        return version >= bound and version[: len(bound) - 1] == bound[:-1]
    is_same = (version[: len(bound)] if is_prefix else version) == bound
    return {
        "==": is_same,
        "!=": not is_same,
        ">=": version >= bound,
        "<=": version <= bound,
        ">": version > bound,
        "<": version < bound,
    }[sign]


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))
