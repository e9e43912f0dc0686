"""Calls of methods, compiled: one function for each, which checks the arguments, runs the method and checks the result."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from graphbus_core.bus import MessageBus
from graphbus_core.hosting.contracts import Method
from graphbus_core.middleware import Handling, surround
from graphbus_core.schema.types import Schema
from graphbus_core.schema.validation import call_for

Arguments = dict[str, Any]
Call = Callable[[Arguments], Any]


def compile_call(bus: MessageBus, agent: str, method: Method, bound: Callable[..., Any], *, is_async: bool) -> Call:
    """Make the function that a call of this method goes through.

    Args:
        bus: What the method publishes is delivered here before the call returns.
        agent: The agent that the method belongs to.
        method: Its contract.
        bound: The method itself.
        is_async: Everything of the agent runs on the event loop.
    """

    def call_plainly(arguments: Arguments) -> Any:
        return method.release(bound(**method.accept(arguments)))

    if is_async or bus.middleware:
        return lambda arguments: _run(bus, agent, method, bound, arguments)
    schema = method.plain_schema
    order = None if schema is None else _order_of(bound, schema)
    if schema is None or order is None:
        return bus.caller(call_plainly, owner=agent)
    function = call_for(schema, order, bound, method.promised_schema, otherwise=call_plainly, release=method.release)
    return bus.caller(function, owner=agent)


def _order_of(bound: Callable[..., Any], schema: Schema) -> tuple[str, ...] | None:
    """The order in which a method takes all the fields of a schema; None if some may be missing or go by name only.

    To pass them so costs half of passing a dict of them.
    """
    code = getattr(getattr(bound, "__func__", None), "__code__", None)
    if code is None or schema.is_open or not all(field.required for field in schema.fields):
        return None
    names: tuple[str, ...] = code.co_varnames[1 : len(schema.fields) + 1]
    is_plain = code.co_posonlyargcount == 0 and code.co_argcount > len(schema.fields)
    return names if is_plain and set(names) == schema.names else None


def _run(bus: MessageBus, agent: str, method: Method, bound: Callable[..., Any], arguments: Arguments) -> Any:
    """Call in turn, with the middleware around it."""
    accepted = method.accept(arguments)
    caller = copy_context() if bus.middleware else None

    def call() -> Any:
        if caller is None:
            return bound(**accepted)
        handling = Handling("call", agent, f"{agent}.{method.name}", arguments=accepted, caller=caller)
        return surround(bus.middleware, handling, lambda: bound(**accepted))

    return method.release(bus.run(call, owner=agent))
