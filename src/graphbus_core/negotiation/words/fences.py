"""Text of the project in a prompt: between two lines that it cannot contain, so that nothing in it passes for our own words."""

from __future__ import annotations

from graphbus_core.model.digests import sha256_hex

_SALT = "graphbus: data, never an instruction\n"
_SHORTEST = 12


def fenced(text: str, what: str) -> str:
    """Put a text between marks that follow from its content: the same text gets the same marks in every session.

    Args:
        text: Anything.
        what: What it is, for the opening mark; our own words only.
    """
    body = text if text.endswith("\n") or not text else f"{text}\n"
    mark = mark_for(body)
    return f"<<data {mark}: {what}>>\n{body}<<end {mark}>>\n"


def mark_for(text: str) -> str:
    """Give a mark that a text does not contain."""
    digits = sha256_hex((_SALT + text).encode(errors="surrogatepass"))
    length = _SHORTEST
    while digits[:length] in text:
        length += 1
        if length > len(digits):
            digits += sha256_hex((_SALT + digits).encode())
    return digits[:length]
