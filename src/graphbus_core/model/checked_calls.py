"""Calls with their checks around them, made for one contract: Python text that takes arguments out of a dict and looks at them.

For `{"sku": str}`, answered by `{"left": int}`; `checks` says what the rest of the text looks like:

    def check(v):
        try:
            if not (type(v) is dict and (type((v1 := v['k0'])) is str or is_str(v1)) and len(v) == 1): raise Misfit
        except Exception: pass
        else:
            result = function(v1)
            try:
                if not (type(result) is dict and (type((v2 := result['k1'])) is int or is_int(v2))): raise Misfit
            except Exception: pass
            else: return result
            return release(result)
        return otherwise(v)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphbus_core.model.checks import TOP, Gate, Text
from graphbus_core.model.schema import Schema


def generate_call(
    wanted: Schema,
    order: Sequence[str],
    function: Callable[..., Any],
    promised: Schema | None,
    *,
    otherwise: Gate,
    release: Gate,
) -> Gate:
    """Make a function that calls another with the fields of a dict, one after the other, and gives its result.

    What it looks at itself are dicts, which is what nearly all arguments and results are.

    Args:
        wanted: What the dict has to be: required fields only.
        order: The names of the fields in the order in which the function takes them.
        function: What is called.
        promised: What the result has to be; None: anything.
        otherwise: Is called in the place of all with what is no dict or does not fit.
        release: Gives back or refuses a result that is no dict or does not fit.
    """
    text = _CallText(order, promised, otherwise)
    text.names |= {"function": function, "release": release}
    return text.function(wanted, is_closed=True)


class _CallText(Text):
    """The text of a check that hands on what it has taken out of a dict, and of the check of what comes back."""

    def __init__(self, order: Sequence[str], promised: Schema | None, otherwise: Gate) -> None:
        super().__init__(otherwise)
        self._order, self._promised = order, promised

    def container(self, v: str, exact: str, look: str) -> str:
        if v not in ("v", "result"):
            return super().container(v, exact, look)
        self.need(f"type({v}) is {exact}")
        return v

    def after(self) -> list[str]:
        """The lines that follow when the arguments are as they are wanted: the call, and a check of its own for the result."""
        called = f"function({', '.join(self.taken[name] for name in self._order)})"
        if self._promised is None:
            return [f"        return {called}"]
        self._lines, self._indent = [], TOP + 1
        self.write("pass")
        self.record(self._promised.fields, "result")
        self.ask()
        return [
            f"        result = {called}",
            "        try:",
            *self._lines,
            "        except Exception: pass",
            "        else: return result",
            "        return release(result)",
        ]
