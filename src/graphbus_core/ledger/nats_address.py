"""The address of a ledger on a NATS server, and what is named after its application. Works without nats-py."""

from __future__ import annotations

import re
from typing import NamedTuple

from graphbus_core.errors import RunError

_PORT = 4222
_URL = re.compile(
    r"(nats|tls)://(?:([^:@/\s]+)(?::([^@/\s]*))?@)?([^:@/\s\[\]]+|\[[0-9a-fA-F:.]+\])(?::(?P<port>[1-9][0-9]{0,4}))?"
    r"(?:/([A-Za-z0-9_-]{1,64})?/?)?"
)


class Address(NamedTuple):
    """Where a server is, and as whom to connect. Only `place` may be shown: it has no password."""

    scheme: str
    host: str
    port: int
    user: str
    password: str
    app: str

    @property
    def place(self) -> str:
        """The server, for messages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def is_on_nats(ledger: str) -> bool:
    """True if a setting `ledger` is the address of a NATS server."""
    return ledger.startswith(("nats://", "tls://"))


def parse_address(url: str, default_app: str = "graphbus") -> Address:
    """Return the parts of `nats://[user:password@]host[:port][/app]`, or of the same with `tls://`.

    Raises:
        RunError: GBE659, it is something else.
    """
    found = _URL.fullmatch(url)
    if found is None or int(found["port"] or 0) > 65_535:
        raise _malformed()
    scheme, user, password, host, port, app = found.groups()
    user, password = (_unquote(each or "") for each in (user, password))
    return Address(scheme, host.strip("[]"), int(port or _PORT), user, password, app or default_app)


def _unquote(text: str) -> str:
    """Return a text with its `%40` replaced, as in a password with an `@`."""
    return re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes.fromhex(found[1].decode()), text.encode()).decode()


def _malformed() -> RunError:
    return unusable(
        "its address is malformed",
        "Write `nats://host:4222/app`, or `nats://user:password@host:4222/app`; an app has letters, digits, `-` and `_`.",
    )


def stream_name(app: str) -> str:
    """Return the name of the stream of an application."""
    return f"GB_{app}"


def unusable(reason: str, advice: str, place: str = "") -> RunError:
    """Return the error about a NATS server that cannot be used."""
    return RunError("GBE659", place=f" at {place}" if place else "", reason=reason, advice=advice)
