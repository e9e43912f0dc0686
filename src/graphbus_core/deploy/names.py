"""What image, manifests and pipelines share: paths and ports in a container, checks of names, versions of Python."""

from __future__ import annotations

import operator
import re

from graphbus_core.errors import DeployError
from graphbus_core.model.powers import Powers

HOME = "/app"
"""The project in the image, read-only; its artifacts are in `/app/.graphbus`."""
STATE = "/var/lib/graphbus"
"""The state folder of a running graph, the one writable folder of a container."""
CONFIG = "/etc/graphbus/graphbus.toml"
"""The settings of the container, for `GRAPHBUS_CONFIG`."""
USER_ID = 65532
"""The user id in the container; it has no name, no home and no shell."""
HEALTH_PORT = 8080
"""The port of `/livez`, `/readyz`, `/startupz` and `/metrics`, which need no token."""
SERVE_PORT = 8765
"""The port of a served graph, for calls and events over HTTP with a token."""
CONFINED_RUNTIME = ("python", "-m", "graphbus_core.runtime", "--confined")
"""The start command of a container: agents are confined to the powers that the project declares."""

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
"""Version of Python -> official image on Debian, by the digest of its index for all platforms; the oldest first.

A tag may be moved to another image, a digest cannot. The tag is for readers, and for bots that update both together.
"""
DEFAULT_PYTHON = "3.11"
"""The version that GraphBus itself is tested with, and that jobs of pipelines use by default."""

LONGEST_LABEL = 63
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_LONGEST_IMAGE = 512
_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"(?:{_WORD}(?:\.{_WORD})*(?::[0-9]{{1,5}})?/)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_TAG = r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
_IMAGE = re.compile(rf"{_HOST}{_PART}(?:/{_PART})*{_TAG}(?:@sha256:[0-9a-f]{{64}})?")
_CLAUSE = re.compile(r"(?:^|,)(>=|<=|==|!=|~=|>|<)3\.([0-9]+)(\.[0-9]+)?(?:\.\*)?(?=,|$)")
_COMPARE = {
    ">=": operator.ge,
    "~=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "!=": operator.ne,
}


def folders_to_write(powers: Powers) -> tuple[str, ...]:
    """Return the folders of a container that agents may write to, in addition to the state folder and `/tmp`.

    These are the declared paths with a `/` at their end. For any other declared path, the user has to mount something.
    """
    declared = (path.removeprefix("./").rstrip("/") for path in powers.write if path.endswith("/"))
    places = (path if path.startswith("/") else f"{HOME}/{path}" for path in declared)
    return tuple(dict.fromkeys(path for path in places if path not in (STATE, "/tmp")))  # noqa: S108 - of the container


def invalid_value(value: str, kind: str, reason: str, example: str) -> DeployError:
    """Make the error GBE703 for a value that is not a valid `kind`, such as "schedule"; `example` is a valid one."""
    return DeployError("GBE703", value=repr(value), kind=kind, reason=reason, example=example)


def check_label(value: str, kind: str) -> str:
    """Return the value if it is a DNS label (RFC 1123), as names of namespaces, services and deployments must be.

    Raises:
        DeployError: GBE703 if it is not; `kind` names the value in the message.
    """
    if len(value) > LONGEST_LABEL:
        raise invalid_value(value, kind, f"it has more than {LONGEST_LABEL} characters", "shop")
    if not _LABEL.fullmatch(value):
        reason = "it may contain a-z, 0-9 and hyphens, and must begin and end with a letter or digit"
        raise invalid_value(value, kind, reason, make_label(value) or "shop")
    return value


def check_image(value: str) -> str:
    """Return the value if it is an image reference: `[host/]name[:tag][@sha256:digest]`.

    Raises:
        DeployError: GBE703 if it is not.
    """
    if len(value) > _LONGEST_IMAGE or not _IMAGE.fullmatch(value):
        reason = "it must look like [host/]name[:tag][@sha256:digest], with the name in lower case"
        raise invalid_value(value, "image reference", reason, "ghcr.io/acme/shop:1.4.2")
    return value


def split_image(image: str) -> tuple[str, str, str]:
    """Split an image reference into (name, tag, digest); a missing tag or digest is empty."""
    name, _, digest = image.partition("@")
    folder, slash, last = name.rpartition("/")
    base, _, tag = last.partition(":")  # a colon before the last slash belongs to a port
    return f"{folder}{slash}{base}", tag, digest


def make_label(text: str) -> str:
    """Turn any text into a DNS label: `OrderProcessor` -> `order-processor`. Empty if no character of it can be used."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", text)
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:LONGEST_LABEL].rstrip("-")


def choose_python(wanted: str, requires_python: str) -> str:
    """Choose the minor version of Python for an image and for jobs.

    Args:
        wanted: The requested version; empty: the default, or else the oldest of `BASES` that the project allows.
        requires_python: `requires-python` of the project; empty: any. Clauses that cannot be read are ignored.

    Raises:
        DeployError: GBE713 when there is no image for the version, GBE738 when the project does not allow it.
    """
    if wanted and wanted not in BASES:
        raise DeployError("GBE713", version=wanted, known=", ".join(BASES))
    allowed = [version for version in BASES if _is_version_allowed(requires_python, version)]
    if wanted and wanted not in allowed:
        raise DeployError("GBE738", wanted=wanted, requires=requires_python)
    if not allowed:
        raise DeployError("GBE713", version=requires_python, known=", ".join(BASES))
    return wanted or (DEFAULT_PYTHON if DEFAULT_PYTHON in allowed else allowed[0])


def _is_version_allowed(requires_python: str, version: str) -> bool:
    """True if a version such as `3.12` satisfies all clauses of `requires_python` that name a minor version.

    Other clauses are ignored.
    """
    minor = int(version.partition(".")[2])
    for sign, bound, patch in _CLAUSE.findall(requires_python.replace(" ", "")):
        # Patch versions are not compared: `==3.11.4` and `~=3.11.4` allow 3.11, and no other minor version.
        is_same = sign == "==" or (sign == "~=" and patch)
        if not (minor == int(bound) if is_same else _COMPARE[sign](minor, int(bound))):
            return False
    return True
