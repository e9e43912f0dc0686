"""Does what it is told, in a handler, a called method, a thread or an async handler."""

from __future__ import annotations

import asyncio
import threading

import deeds

from graphbus_core import GraphBusNode, schema_method, subscribe


class Doer(GraphBusNode):
    @schema_method(input_schema={"deed": str}, output_schema={"outcome": str})
    def do(self, deed: str) -> dict[str, str]:
        return {"outcome": deeds.attempt(deed)}

    @schema_method(input_schema={"deed": str}, output_schema={"outcome": str})
    def do_in_a_thread(self, deed: str) -> dict[str, str]:
        outcomes: list[str] = []
        thread = threading.Thread(target=lambda: outcomes.append(deeds.attempt(deed)))
        thread.start()
        thread.join()
        return {"outcome": outcomes[0]}

    @subscribe("/Deed/Wanted")
    def on_deed_wanted(self, deed: str) -> None:
        deeds.do(deed)


class AsyncDoer(GraphBusNode):
    @schema_method(input_schema={"deed": str}, output_schema={"outcome": str})
    async def do(self, deed: str) -> dict[str, str]:
        await asyncio.sleep(0)
        return {"outcome": deeds.attempt(deed)}

    @schema_method(input_schema={"deed": str}, output_schema={"outcome": str})
    async def do_elsewhere(self, deed: str) -> dict[str, str]:
        return {"outcome": await asyncio.to_thread(deeds.attempt, deed)}
