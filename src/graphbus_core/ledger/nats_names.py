"""Names on a NATS server: its address, the stream of an application, and the subjects of topics, questions and answers.

    gb.<app>.Order.Created                       an event on /Order/Created
    gbq.<app>.<Agent>.topic.Price.Asked          a request on /Price/Asked to an agent of another process
    gbq.<app>.<Agent>.method.balance             a call of a method
    gbo.<app>.<consumer>                         the question who handles the events of a consumer
    _INBOX.<user>.<Agent>...                     the answer of an agent; other answers have no agent

What an agent may do is decided by subjects (see `deploy.nats`), so each of them says all that matters.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from graphbus_core.errors import RunError

_PORT = 4222
_URL = re.compile(
    r"(nats|tls)://(?:([^:@/\s]+)(?::([^@/\s]*))?@)?([^:@/\s\[\]]+|\[[0-9a-fA-F:.]+\])(?::(?P<port>[1-9][0-9]{0,4}))?"
    r"(?:/([A-Za-z0-9_-]{1,64})?/?)?"
)
_INBOX = "_INBOX"
_TOKENS = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")


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


def unusable(reason: str, advice: str, place: str = "") -> RunError:
    """Return the error about a NATS server that cannot be used."""
    return RunError("GBE659", place=f" at {place}" if place else "", reason=reason, advice=advice)


# --- subjects ---


def stream_name(app: str) -> str:
    """Return the name of the stream of an application."""
    return f"GB_{app}"


def subject_of(app: str, topic: str) -> str:
    """Return the subject of a topic, or the filter of a pattern."""
    return f"gb.{app}.{_tokens_of(topic)}"


def _tokens_of(topic: str) -> str:
    segments = topic.strip("/").split("/")
    if segments[-1] == "**":
        segments[-1] = ">"
    return ".".join(segments)


def consumer_name(agent: str, partition: int | None) -> str:
    """Return the name of the consumer of an agent, or of one of its partitions; no other agent has it."""
    return agent if partition is None else f"{agent}-{partition}"


def consumer_names(agent: str, partitions: int) -> list[str]:
    """Return the names of all consumers of an agent with this number of partitions."""
    return [consumer_name(agent, each) for each in (range(partitions) if partitions > 1 else [None])]


def subject_of_owner(app: str, consumer: str) -> str:
    """Return the subject on which the process that handles the events of a consumer says so."""
    return f"gbo.{app}.{consumer}"


def subject_of_questions(app: str, agent: str) -> str:
    """Return the subject on which an agent gets all its questions."""
    return f"gbq.{app}.{agent}.>"


def subject_of_request(app: str, agent: str, topic: str) -> str:
    """Return the subject of requests on a topic to an agent."""
    return f"gbq.{app}.{agent}.topic.{_tokens_of(topic)}"


def subject_of_call(app: str, agent: str, method: str) -> str:
    """Return the subject of calls of a method of an agent."""
    return f"gbq.{app}.{agent}.method.{re.sub(r'[^A-Za-z0-9_*]', '_', method)}"


def subject_of_question(app: str, agent: str, text: str) -> str:
    """Return the subject of a question with this text (see `questions`).

    Raises:
        ValueError: It is not the text of a question.
    """
    asked = json.loads(text)
    if isinstance(asked, dict):
        if isinstance(topic := asked.get("topic"), str):
            return subject_of_request(app, agent, topic)
        if isinstance(method := asked.get("method"), str):
            return subject_of_call(app, agent, method)
    raise ValueError("it is not a question")


def inbox_of(user: str) -> str:
    """Return the first part of the subjects on which a user gets answers, and nobody else if the server has users."""
    return f"{_INBOX}.{user}" if _TOKENS.fullmatch(user) else _INBOX


def subject_of_answers(app: str, agent: str) -> str:
    """Return the subjects on which an agent answers the users of an application, which are named `app.name`."""
    return f"{_INBOX}.{app}.*.{agent}.>"


def is_inbox(subject: str) -> bool:
    """Return whether an answer may be sent to a subject; another one might be that of an event."""
    return subject.startswith(f"{_INBOX}.")
