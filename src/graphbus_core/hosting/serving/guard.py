"""Who may send requests: a token against strangers, the Host against rebound names, the Origin against pages of others.

A web page can make its reader's browser send requests to 127.0.0.1. It cannot set their Origin, their token, or a content type
of JSON without asking first; and with a name of its own that it lets point here, it cannot hide that name.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from hmac import compare_digest

from graphbus_core.errors import RunError
from graphbus_core.model.config import ServeConfig

PROBES = frozenset({"/livez", "/readyz", "/startupz"})

_LOOPBACK_NAMES = frozenset({"localhost", "ip6-localhost"})


class Guard:
    """Judges requests by method, path and headers, before their body is read."""

    def __init__(self, config: ServeConfig, token: str) -> None:
        self._token = token.encode()
        self._hosts = frozenset(map(str.lower, config.allowed_hosts)) | _LOOPBACK_NAMES | {config.host.lower()}
        self._origins = frozenset(map(str.lower, config.allowed_origins))
        self._is_loopback = is_loopback(config.host)

    def check(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        """Let the request pass, or refuse it. Probes pass always: they say nothing that an attacker could use.

        Raises:
            RunError: GBE674 for a foreign Host, GBE675 for a foreign Origin, GBE673 without the token.
        """
        is_read = method in ("GET", "HEAD")
        if is_read and path in PROBES:
            return
        host = headers.get("host", "")
        if not names_one_of(host, self._hosts):
            raise RunError("GBE674", host=host)
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in self._origins:
            raise RunError("GBE675", origin=origin)
        if not (is_read and self._is_loopback) and not self._has_token(headers.get("authorization", "")):
            raise RunError("GBE673")

    def _has_token(self, authorization: str) -> bool:
        scheme, _, given = authorization.partition(" ")
        return compare_digest(given.strip().encode(), self._token) and scheme.lower() == "bearer"


def may_read_without_token(listens_at: str, host: str) -> bool:
    """True unless the Host is of a page whose own name leads here; where other machines may read, any name may be ours."""
    return not is_loopback(listens_at) or names_one_of(host, _LOOPBACK_NAMES)


def names_one_of(host: str, names: Container[str]) -> bool:
    """True when the Host is one of the names, or an address: no page can make an address point elsewhere."""
    name = host_name(host)
    return name in names or is_address(name)


def host_name(host: str) -> str:
    """The host without its port, in small letters; empty for what is none."""
    name, bracket, port = host.partition("]")
    if not bracket:
        name, _, port = host.partition(":")
    elif port and not port.startswith(":"):
        return ""
    port = port.removeprefix(":")
    return "" if port and not port.isdecimal() else name.removeprefix("[").lower()


def is_address(name: str) -> bool:
    """True for an IPv4 or IPv6 address."""
    import socket

    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, name)
        except (OSError, ValueError):
            continue
        return True
    return False


def is_loopback(host: str) -> bool:
    """True when only this machine can reach the address."""
    return host.lower() in _LOOPBACK_NAMES or host == "::1" or (host.startswith("127.") and is_address(host))
