"""`graphbus relay`: lets a program anywhere on a NATS server represent an agent.

Each line of the negotiation protocol on standard input is sent as a request on NATS, and every answer is printed, also one that
nobody expects: the negotiation judges it. It starts this command as the program of the agent, and all that is said about programs
holds for one on NATS, too.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click

from graphbus_core.hosting.imports import require_packages

_PREFIX = "gbnp"
_HELLO_S = 5.0
"""How long the first answer may take. After it only the time limit of the negotiation counts, which ends this process."""
_PAUSE_S = 0.1
"""The pause before a program is asked again that does not listen yet."""


@click.command("relay", short_help="Connect a program on NATS with a negotiation.")
@click.argument("url", metavar="URL")
def relay(url: str) -> int:
    """Read messages of the negotiation protocol on stdin, send each to the program that represents the agent on a NATS
    server, and print its answer.

    The subject is `gbnp.SESSION.AGENT.METHOD`, for example gbnp.1f3a.Stock.evaluate; SESSION is made at each start. A
    notification is sent there without a reply subject. It is meant as a `command` in [tool.graphbus.agents].

    Exit status: 0 after a bye, or when the input ends; 7 the server cannot be used, or no program listens.

    \b
    Examples:
      graphbus relay nats://127.0.0.1:4222
    """
    require_packages("An agent on NATS", ["nats"], extra="nats")
    import asyncio

    asyncio.run(_relay(url))
    return 0


async def _relay(url: str) -> None:
    """Pass on each line until a farewell is answered."""
    import asyncio

    from graphbus_core.ledger.nats_link import NatsLink
    from graphbus_core.ledger.nats_names import parse_address, unusable
    from graphbus_core.ledger.seam import EngineGone

    answers: asyncio.Queue[Any] = asyncio.Queue()
    link = NatsLink(parse_address(url), lambda: answers.put_nowait(None))
    await link.connect()
    session, agent, subject, inbox = os.urandom(4).hex(), "", "", link.new_inbox()
    try:
        await link.listen(inbox, lambda answer: _print_answer(answer, answers))
        while line := await asyncio.to_thread(sys.stdin.buffer.readline):
            message: dict[str, Any] = json.loads(line)
            method = str(message["method"])
            agent = agent or message["params"]["agent"]
            subject = f"{_PREFIX}.{session}.{agent}.{method.rpartition('/')[2]}"
            is_first, is_last = (method == f"agent/{name}" for name in ("hello", "bye"))
            if "id" not in message:
                await link.send(subject, line.rstrip(b"\n"))
                continue
            async with asyncio.timeout(_HELLO_S if is_first else None):
                while not await _ask(link, subject, line.rstrip(b"\n"), inbox, answers):
                    if not is_first:
                        raise TimeoutError
                    await asyncio.sleep(_PAUSE_S)
            if is_last:
                return
    except TimeoutError:
        advice = f"Start the program, and let it subscribe to `{_PREFIX}.*.{agent}.*`."
        raise unusable(f"no program answers on {subject}", advice, link.address.place) from None
    except EngineGone as gone:
        raise unusable(str(gone), "Try again.", link.address.place) from None
    finally:
        await link.close()


async def _ask(link: Any, subject: str, body: bytes, inbox: str, answers: Any) -> bool:
    """Send a request with a NatsLink, and return whether a program has answered.

    Raises:
        EngineGone: The connection is lost meanwhile; `answers` then has None instead of a message.
    """
    from graphbus_core.ledger.seam import EngineGone

    await link.send(subject, body, reply=inbox)
    answer = await answers.get()
    if answer is None:
        raise EngineGone("the connection was lost")
    return not _is_missing(answer)


def _print_answer(answer: Any, answers: Any) -> None:
    """Print an answer as a line, and hand it over."""
    if not _is_missing(answer):
        sys.stdout.buffer.write(answer.data.removesuffix(b"\n") + b"\n")
        sys.stdout.buffer.flush()
    answers.put_nowait(answer)


def _is_missing(answer: Any) -> bool:
    """Return whether an answer is that of the server, because nobody listens on the subject."""
    return bool(answer.headers and answer.headers.get("Status") == "503")
