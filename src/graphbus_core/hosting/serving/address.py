"""Where to listen, and with which token: found out before anything listens."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from secrets import token_urlsafe
from socket import gaierror
from stat import S_IROTH, S_IWOTH
from typing import NamedTuple

from graphbus_core.errors import RunError, UsageError
from graphbus_core.hosting.serving.guard import is_loopback
from graphbus_core.log import Log
from graphbus_core.model.config import ServeConfig
from graphbus_core.store.beneath import Folder

MIN_TOKEN_LENGTH = 16
_OTHERS = S_IROTH | S_IWOTH

_log = Log("graphbus.http")


class Token(NamedTuple):
    """What requests must bear, and what a person is told about it; nothing when they know it already."""

    text: str
    notice: str = ""


def read_address(text: str, host: str) -> tuple[str, int]:
    """Understand `PORT` or `HOST:PORT`.

    Args:
        text: What was given.
        host: The host for a port alone.

    Raises:
        UsageError: GBE157.
    """
    name, colon, port = text.rpartition(":")
    if not port.isdecimal() or not port.isascii() or int(port) > 65_535:
        raise UsageError("GBE157", address=text, reason="a port is a number from 0 to 65535")
    if colon and not name:
        raise UsageError("GBE157", address=text, reason="there is no host before the colon")
    return name.removeprefix("[").removesuffix("]") or host, int(port)


def refuse_address(host: str, port: int, error: OSError | OverflowError) -> RunError:
    """GBE672 for an address on which nothing can listen."""
    number = error.errno if isinstance(error, OSError) and not isinstance(error, gaierror) else None
    reason = os.strerror(number) if number else getattr(error, "strerror", None) or str(error)
    return RunError("GBE672", address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}", reason=reason)


def find_token(config: ServeConfig, root: Path, state_dir: Path) -> Token:
    """Take the token from the environment or the file that is configured; else make one, as far as that is safe.

    On a terminal a made token is shown. Elsewhere a log would keep it: it goes into a file that only its owner can read, and who
    listens for other machines must bring a token.

    Raises:
        UsageError: GBE155 nobody has given one and it cannot be shown, GBE156 it is unusable.
    """
    given = os.environ.get(config.token_env, "") if config.token_env else ""
    if given:
        return Token(_checked(given.strip(), f"the variable {config.token_env}"))
    if config.token_file:
        return Token(_checked(_read(root / config.token_file, config.token_file), config.token_file))
    made = token_urlsafe(24)
    if sys.stderr.isatty():
        return Token(made, f"token: {made} (set {config.token_env or 'token_env'} to keep one)")
    if not is_loopback(config.host):
        raise UsageError("GBE155", host=config.host, length=MIN_TOKEN_LENGTH, variable=config.token_env or "token_env")
    path = state_dir / "http_token"
    try:
        _write_privately(path, made)
    except OSError as error:
        reason = f"it cannot be written ({error.strerror}); put one into the variable {config.token_env or 'token_env'}"
        raise UsageError("GBE156", source=os.path.relpath(path), reason=reason) from None
    return Token(made, f"token: in {os.path.relpath(path)}")


def _checked(token: str, source: str) -> str:
    if len(token) < MIN_TOKEN_LENGTH:
        reason = f"it has {len(token)} characters, and {MIN_TOKEN_LENGTH} are the least"
        raise UsageError("GBE156", source=source, reason=reason)
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError("GBE156", source=source, reason="a header can hold only plain letters, digits and signs")
    return token


def _read(path: Path, shown: str) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise UsageError("GBE156", source=shown, reason=reason) from None
    if mode & _OTHERS:
        can = "read" if mode & S_IROTH else "write"
        _log.warning("every user of this machine can %s %s, which holds the token: chmod 600 %s", can, shown, shown)
    return text


def _write_privately(path: Path, token: str) -> None:
    """Write it so that at no moment anybody else can read it."""
    with Folder.at(path.parent, make=True) as folder:
        folder.write(path.name, f"{token}\n".encode("ascii"), 0o600)
