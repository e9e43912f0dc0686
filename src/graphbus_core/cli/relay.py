"""`graphbus relay`: lets a program anywhere on a NATS server represent an agent.

Each line of the negotiation protocol on standard input is sent as a request on NATS, and the answer is printed. So a negotiation
starts this command as the program of the agent, and all that is said about programs holds for one on NATS, too.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click

from graphbus_core.hosting.imports import require_packages

_PREFIX = "gbnp"
_HELLO_S, _ANSWER_S = 5.0, 3600.0
"""How long an answer may take. After the first one only the time limit of the negotiation counts, which ends this process."""


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

    link = NatsLink(parse_address(url), lambda: None)
    await link.connect()
    session, agent, subject = os.urandom(4).hex(), "", ""
    try:
        while line := await asyncio.to_thread(sys.stdin.buffer.readline):
            message: dict[str, Any] = json.loads(line)
            method = str(message["method"])
            agent = agent or message["params"]["agent"]
            subject = f"{_PREFIX}.{session}.{agent}.{method.rpartition('/')[2]}"
            if "id" not in message:
                await link.send(subject, line.rstrip(b"\n"))
                continue
            limit_s = _HELLO_S if method == "agent/hello" else _ANSWER_S
            answer = await link.ask("", subject, line.rstrip(b"\n"), limit_s)
            sys.stdout.buffer.write(answer.rstrip(b"\n") + b"\n")
            sys.stdout.buffer.flush()
            if method == "agent/bye":
                return
    except TimeoutError:
        advice = f"Start the program, and let it subscribe to `{_PREFIX}.*.{agent}.*`."
        raise unusable(f"no program answers on {subject}", advice, link.address.place) from None
    except EngineGone as gone:
        raise unusable(str(gone), "Try again.", link.address.place) from None
    finally:
        await link.close()
