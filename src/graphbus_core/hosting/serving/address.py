"""The address and token of the HTTP server, and which requests it accepts.

Theory of operation. Any web page can make its reader's browser send requests to 127.0.0.1. The browser sets their Origin, and
asks the server before it sends a token or JSON, so checking these refuses such pages. With DNS rebinding, a page makes its own
host name resolve to this machine; its requests still carry that name as Host, so only known names and plain addresses are
accepted.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Container, Mapping
from contextlib import suppress
from errno import EACCES, EADDRINUSE
from hmac import compare_digest
from pathlib import Path
from secrets import token_urlsafe
from socket import gaierror
from stat import S_IROTH, S_IWOTH
from typing import NamedTuple

from graphbus_core.errors import RunError, UsageError
from graphbus_core.errors.system import advise_on, reason_of
from graphbus_core.hosting.serving.pages import is_of_pages, is_public
from graphbus_core.log import Log
from graphbus_core.model.config import ServeConfig
from graphbus_core.model.digests import sha256_hex
from graphbus_core.store.folders import Folder

PROBES = frozenset({"/livez", "/readyz", "/startupz"})

_LOOPBACK_NAMES = frozenset({"localhost", "ip6-localhost"})
_HOST = re.compile(r"(?:\[([^\]]+)\]|([^:\[\]]*))(?::[0-9]*)?")


class RequestGuard:
    """Decides from method, path and headers, before the body is read, whether a request is accepted.

    Attributes:
        cookie: Name and value of the cookie that stands for the token below the prefix of pages. Browsers send it to other ports
            of this host, too, so the token cannot be computed from it.
    """

    def __init__(self, config: ServeConfig, token: str) -> None:
        self._token = token.encode()
        key = sha256_hex(self._token)
        self.cookie = f"graphbus_{sha256_hex(f'name {key}'.encode())[:8]}={sha256_hex(f'value {key}'.encode())}"
        self._hosts = frozenset(map(str.lower, config.allowed_hosts)) | _LOOPBACK_NAMES | {config.host.lower()}
        self._origins = frozenset(map(str.lower, config.allowed_origins))
        self._is_loopback = is_loopback(config.host)

    def check(self, method: str, path: str, headers: Mapping[str, str]) -> None:
        """Raise an error for a request that is not accepted. Probes always are: their answers reveal nothing useful.

        Raises:
            RunError: GBE674 for an unknown Host, GBE675 for an Origin that is not allowed, GBE673 without the
                token, which reading on a loopback address and public pages do not need.
        """
        is_read = method in ("GET", "HEAD")
        if is_read and path in PROBES:
            return
        host = headers.get("host", "")
        if not _names_one_of(host, self._hosts):
            raise RunError("GBE674", host=host)
        origin = headers.get("origin", "").lower()
        # Browsers send the Origin of our own pages, too; the Host, which was checked, says which one that is.
        is_own = is_of_pages(path) and origin in (f"http://{host.lower()}", f"https://{host.lower()}")
        if "origin" in headers and origin not in self._origins and not is_own:
            raise RunError("GBE675", origin=headers["origin"])
        if not (is_read and (self._is_loopback or is_public(path))) and not self.is_trusted(method, path, headers):
            raise RunError("GBE673")

    def is_trusted(self, method: str, path: str, headers: Mapping[str, str]) -> bool:
        """True if a request carries the token, or below the prefix of pages the cookie in its place.

        A browser adds the cookie to the requests of other pages, too. These can neither read the answer to a GET, nor set the
        header without which a POST with the cookie is refused.
        """
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if self.is_token(token.strip()) and scheme.lower() == "bearer":
            return True
        if not is_of_pages(path) or (method == "POST" and "x-graphbus-view" not in headers):
            return False
        sent = headers.get("cookie", "").split(";")
        return any(compare_digest(each.strip().encode(), self.cookie.encode()) for each in sent)

    def is_token(self, text: str) -> bool:
        """True for the token."""
        return compare_digest(text.encode(), self._token)


def may_read_without_token(listens_at: str, host: str) -> bool:
    """True if metrics may be read without a token: on a loopback address, only with a Host that names this machine.

    A server that other machines can reach may have any name, so there the Host is not checked.
    """
    return not is_loopback(listens_at) or _names_one_of(host, _LOOPBACK_NAMES)


def _names_one_of(host: str, names: Container[str]) -> bool:
    """True when a Host header has one of these names, or an IP address: DNS rebinding needs a name of the attacker."""
    name = _host_name(host)
    return name in names or _is_address(name)


def _host_name(host: str) -> str:
    """Return the host of a Host header in lower case, without its port; empty for an invalid header."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]).lower() if found else ""


def _is_address(name: str) -> bool:
    """True for an IP address."""
    import socket

    with suppress(OSError, ValueError):
        return bool(socket.inet_pton(socket.AF_INET6 if ":" in name else socket.AF_INET, name))
    return False


def is_loopback(host: str) -> bool:
    """True when only this machine can reach the address."""
    return host.lower() in _LOOPBACK_NAMES or host == "::1" or (host.startswith("127.") and _is_address(host))


_MIN_TOKEN_LENGTH = 16
_NEW_TOKEN_ADVICE = "Generate a token with `python -c 'import secrets; print(secrets.token_urlsafe(32))'`."  # noqa: S105 - a hint
_OTHERS = S_IROTH | S_IWOTH

_log = Log("graphbus.http")


class Token(NamedTuple):
    """The token that requests must carry, and a line for the terminal about it; no line for a configured token."""

    text: str
    notice: str = ""

    @property
    def is_shown(self) -> bool:
        """True if the token itself is in the line for the terminal."""
        return self.text in self.notice


def parse_address(text: str, host: str) -> tuple[str, int]:
    """Parse `PORT` or `HOST:PORT`.

    Args:
        text: The text from the command line.
        host: The default host.

    Raises:
        UsageError: GBE157 for anything else.
    """
    name, colon, port = text.rpartition(":")
    if not port.isdecimal() or not port.isascii() or int(port) > 65_535:
        raise UsageError("GBE157", address=text, reason="a port is a number from 0 to 65535")
    if colon and not name:
        raise UsageError("GBE157", address=text, reason="there is no host before the colon")
    return name.removeprefix("[").removesuffix("]") or host, int(port)


def address_error(host: str, port: int, error: OSError | OverflowError) -> RunError:
    """Make the error GBE672 for an address that cannot be listened on."""
    # A failed name look-up (gaierror) has numbers of its own in `errno`, which `os.strerror` does not know.
    number = error.errno if isinstance(error, OSError) and not isinstance(error, gaierror) else None
    reason = os.strerror(number) if number else getattr(error, "strerror", None) or str(error)
    advice = "Use the address of a network interface of this machine, e.g. `127.0.0.1` or `0.0.0.0`."
    if number == EADDRINUSE:
        advice = "Choose another port, or stop the process that uses this one."
    elif number == EACCES or isinstance(error, OverflowError):
        advice = "Choose a port from 1024 to 65535."
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return RunError("GBE672", address=address, reason=f"{reason[:1].lower()}{reason[1:]}", advice=advice)


def find_token(config: ServeConfig, root: Path, state_dir: Path) -> Token:
    """Return the configured token, from an environment variable or a file, or else create one.

    A new token is printed if stderr is a terminal. Otherwise a log might store it, so it is written to `http_token` in the state
    folder, readable for its owner only; a server that other machines can reach then needs a configured token.

    Args:
        config: The settings of the server.
        root: The project; `token_file` is relative to it.
        state_dir: Where a new token is written.

    Raises:
        UsageError: GBE155 when a token must be configured, GBE156 when the configured one cannot be used.
    """
    configured = os.environ.get(config.token_env, "") if config.token_env else ""
    if configured:
        return Token(_check_token(configured.strip(), f"the variable {config.token_env}"))
    if config.token_file:
        return Token(_check_token(_read_token_file(root / config.token_file, config.token_file), config.token_file))
    new_token = token_urlsafe(24)
    if sys.stderr.isatty():
        return Token(new_token, f"token: {new_token} (set {config.token_env or 'token_env'} to keep one)")
    if not is_loopback(config.host):
        variable = config.token_env or "that `token_env` names"
        raise UsageError("GBE155", host=config.host, length=_MIN_TOKEN_LENGTH, variable=variable)
    path = state_dir / "http_token"
    try:
        with Folder.at(path.parent, make=True) as folder:
            folder.write(path.name, f"{new_token}\n".encode("ascii"), 0o600)
    except OSError as error:
        advice = (
            f"{advise_on(error, path)} Or put a token into the variable {config.token_env or 'that `token_env` names'}."
        )
        reason = f"it cannot be written ({reason_of(error)})"
        raise UsageError("GBE156", source=os.path.relpath(path), reason=reason, advice=advice) from None
    return Token(new_token, f"token: in {os.path.relpath(path)}")


def _check_token(token: str, source: str) -> str:
    """Return a token that is long enough and fits into a header; raise GBE156 for any other."""
    if len(token) < _MIN_TOKEN_LENGTH:
        reason = f"it has {len(token)} characters, and at least {_MIN_TOKEN_LENGTH} are needed"
        raise UsageError("GBE156", source=source, reason=reason, advice=_NEW_TOKEN_ADVICE)
    if not token.isascii() or not token.isprintable() or " " in token:
        reason = "an HTTP header can hold only ASCII letters, digits and punctuation"
        raise UsageError("GBE156", source=source, reason=reason, advice=_NEW_TOKEN_ADVICE)
    return token


def _read_token_file(path: Path, name: str) -> str:
    """Return the text of a token file; raise GBE156 if it cannot be read. Log a warning if other users can read or write it."""
    try:
        text = path.read_text(encoding="utf-8").strip()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        is_os_error = isinstance(error, OSError)
        reason = reason_of(error) if is_os_error else "it is not UTF-8 text"
        advice = advise_on(error, path) if is_os_error else _NEW_TOKEN_ADVICE
        raise UsageError("GBE156", source=name, reason=reason, advice=advice) from None
    if mode & _OTHERS:
        can = "read" if mode & S_IROTH else "write"
        _log.warning("every user of this machine can %s %s, which holds the token: chmod 600 %s", can, name, name)
    return text
