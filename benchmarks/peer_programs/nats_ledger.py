"""nats-py alone: a stream in a file, and a durable pull consumer that acknowledges each message when it is handled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import nats
from ledger_protocol import Append, Handle, serve
from nats.errors import TimeoutError as NothingCameError
from nats.js.api import ConsumerConfig, RetentionPolicy, StreamConfig

PREFETCH = 256


async def start(url: str, handle: Handle) -> Append:
    """Make the stream and the consumer, and begin to fetch."""
    client = await nats.connect(url)
    stream = client.jetstream()
    await stream.add_stream(StreamConfig("RAW", subjects=["raw.>"], retention=RetentionPolicy.INTEREST))
    consumer = await stream.pull_subscribe("raw.event", "raw", "RAW", config=ConsumerConfig(ack_wait=30))

    async def consume() -> None:
        while True:
            try:
                messages = await consumer.fetch(PREFETCH, timeout=30)
            except NothingCameError:
                continue
            for message in messages:
                handle(json.loads(message.data))
                await message.ack()

    async def append(payloads: Sequence[dict[str, Any]]) -> None:
        stored = [await stream.publish_async("raw.event", json.dumps(payload).encode()) for payload in payloads]
        await asyncio.gather(*stored)

    append.consuming = asyncio.create_task(consume())  # type: ignore[attr-defined]  # a task needs somebody who keeps it
    return append


if __name__ == "__main__":
    serve(start)
