"""Names that others check later and less kindly: labels of DNS, references of images."""

from __future__ import annotations

import re

from graphbus_core.errors import DeployError

_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_LONGEST_LABEL = 63
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = (
    r"(?:(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*(?::[0-9]{1,5})?/)?"
)
_IMAGE = re.compile(rf"{_HOST}{_PART}(?:/{_PART})*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?")
_LONGEST_IMAGE = 512


def check_label(value: str, kind: str) -> str:
    """Give the value back when it is a label as DNS has them (RFC 1123): the name of a namespace, a service, a deployment.

    Raises:
        DeployError: GBE703.
    """
    if len(value) > _LONGEST_LABEL:
        raise DeployError(
            "GBE703",
            value=repr(value),
            kind=kind,
            reason=f"it has more than {_LONGEST_LABEL} characters",
            example="shop",
        )
    if not _LABEL.fullmatch(value):
        reason = "it may have a-z, 0-9 and hyphens, and begins and ends with a letter or digit"
        raise DeployError("GBE703", value=repr(value), kind=kind, reason=reason, example=as_label(value) or "shop")
    return value


def check_image(value: str) -> str:
    """Give the value back when it is a reference of an image: `[host/]name[:tag][@sha256:digest]`.

    Raises:
        DeployError: GBE703.
    """
    if len(value) > _LONGEST_IMAGE or not _IMAGE.fullmatch(value):
        reason = "it is read as [host/]name[:tag][@sha256:digest], the name in small letters"
        raise DeployError(
            "GBE703", value=repr(value), kind="reference of an image", reason=reason, example="ghcr.io/acme/shop:1.4.2"
        )
    return value


def as_label(text: str) -> str:
    """Make a label of any text, `""` where nothing of it can stay: `OrderProcessor` -> `order-processor`."""
    words = re.sub(r"([a-z0-9])([A-Z])|([A-Z])(?=[A-Z][a-z])", _hyphenated, text)
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:_LONGEST_LABEL].rstrip("-")


def _hyphenated(found: re.Match[str]) -> str:
    return f"{found[1]}-{found[2]}" if found[1] else f"{found[3]}-"
