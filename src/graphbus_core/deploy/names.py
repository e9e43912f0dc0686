"""Names that a cluster or a registry would refuse later: labels of DNS, and references to images."""

from __future__ import annotations

import re

from graphbus_core.errors import DeployError

LONGEST_LABEL = 63
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_LONGEST_IMAGE = 512
_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"(?:{_WORD}(?:\.{_WORD})*(?::[0-9]{{1,5}})?/)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_TAG = r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
_IMAGE = re.compile(rf"{_HOST}{_PART}(?:/{_PART})*{_TAG}(?:@sha256:[0-9a-f]{{64}})?")


def refusal(value: str, kind: str, reason: str, example: str) -> DeployError:
    """Make the error GBE703: the value is not of its kind, for this reason; `example` is one that is."""
    return DeployError("GBE703", value=repr(value), kind=kind, reason=reason, example=example)


def check_label(value: str, kind: str) -> str:
    """Return the value if it is a DNS label (RFC 1123), as names of namespaces, services and deployments are.

    Raises:
        DeployError: GBE703.
    """
    if len(value) > LONGEST_LABEL:
        raise refusal(value, kind, f"it has more than {LONGEST_LABEL} characters", "shop")
    if not _LABEL.fullmatch(value):
        reason = "it may have a-z, 0-9 and hyphens, and begins and ends with a letter or digit"
        raise refusal(value, kind, reason, as_label(value) or "shop")
    return value


def check_image(value: str) -> str:
    """Return the value if it is a reference to an image: `[host/]name[:tag][@sha256:digest]`.

    Raises:
        DeployError: GBE703.
    """
    if len(value) > _LONGEST_IMAGE or not _IMAGE.fullmatch(value):
        reason = "it is read as [host/]name[:tag][@sha256:digest], the name in small letters"
        raise refusal(value, "reference of an image", reason, "ghcr.io/acme/shop:1.4.2")
    return value


def parts_of_image(image: str) -> tuple[str, str, str]:
    """Split a reference into name, tag and digest; a colon before the last slash belongs to a port."""
    name, _, digest = image.partition("@")
    folder, slash, last = name.rpartition("/")
    base, _, tag = last.partition(":")
    return f"{folder}{slash}{base}", tag, digest


def as_label(text: str) -> str:
    """Make a label of any text: `OrderProcessor` -> `order-processor`. Empty if no character of it can stay."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", text)
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:LONGEST_LABEL].rstrip("-")
