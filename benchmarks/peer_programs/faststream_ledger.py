"""FastStream on a NATS server: a durable pull subscriber of a stream, with the acknowledgements that it gives by default."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from faststream.nats import JStream, NatsBroker, PullSub
from ledger_protocol import Append, Handle, serve
from nats.js.api import RetentionPolicy

PREFETCH = 256


async def start(url: str, handle: Handle) -> Append:
    """Make the stream, and start the broker."""
    broker = NatsBroker(url, logger=None, log_level=logging.CRITICAL)
    stream = JStream("FASTSTREAM", subjects=["faststream.>"], retention=RetentionPolicy.INTEREST)

    @broker.subscriber("faststream.event", stream=stream, durable="faststream", pull_sub=PullSub(batch_size=PREFETCH))
    async def consume(event: dict) -> None:  # type: ignore[type-arg]
        handle(event)

    await broker.start()

    async def append(payloads: Sequence[dict[str, Any]]) -> None:
        await asyncio.gather(*(broker.publish(each, "faststream.event", stream="FASTSTREAM") for each in payloads))

    return append


if __name__ == "__main__":
    serve(start)
