"""Calls of methods, compiled: one function for each, which checks the arguments, runs the method and checks the result."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from typing import Any, NamedTuple

from graphbus_core.bus import MessageBus
from graphbus_core.hosting.contracts import Method
from graphbus_core.middleware import Handling, surround
from graphbus_core.model.checks import generate_call
from graphbus_core.model.schema import Schema

Arguments = dict[str, Any]
Call = Callable[[Arguments], Any]


class Current(NamedTuple):
    """An agent's method as it is at the time: a reload may exchange it while a call waits its turn.

    Attributes:
        bound: Gives the method itself.
        call: Calls it, by its contract.
    """

    bound: Callable[[], Callable[..., Any]]
    call: Call


def compile_call(bus: MessageBus, agent: str, method: Method, current: Current, *, is_async: bool) -> Call:
    """Make the function that a call of this method goes through.

    Args:
        bus: What the method publishes is delivered here before the call returns.
        agent: The agent that the method belongs to.
        method: Its contract.
        current: The method itself.
        is_async: Everything of the agent runs on the event loop.
    """
    bound = current.bound()

    def call_plainly(arguments: Arguments) -> Any:
        return bound(**method.accept(arguments))

    if is_async or bus.middleware:
        return lambda arguments: method.release(_run(bus, agent, method.name, current, method.accept(arguments)))
    schema = method.plain_schema
    order = None if schema is None else _order_of(bound, schema)
    if schema is None or order is None:
        return bus.caller(call_plainly, method.release, current.call)
    return bus.caller(generate_call(schema, order, bound, call_plainly), method.release, current.call)


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


def _run(bus: MessageBus, agent: str, name: str, current: Current, arguments: Arguments) -> Any:
    middleware = bus.middleware
    if not middleware:
        return bus.run(lambda: current.bound()(**arguments), owner=agent)
    handling = Handling("call", agent, f"{agent}.{name}", arguments=arguments, caller=copy_context())
    return bus.run(lambda: surround(middleware, handling, lambda: current.bound()(**arguments)), owner=agent)
