"""Checks made for one schema: Python text that looks at each field by name, without loops over the schema and without calls.

For `{"sku": str, "tags": [str]}`, whose names are data and never part of the text; they take the places of `k0` and `k1`:

    def check(v):
        try:
            v1 = v if type(v) is dict else fields_of(v)
            if not (v1 is not None and (type((v2 := v1['k0'])) is str or is_str(v2))): return False
            v3 = v1['k1']
            v4 = v3 if type(v3) is list else items_of(v3)
            if not (v4 is not None): return False
            for v5 in v4:
                if not ((type(v5) is str or is_str(v5))): return False
        except Exception: pass      # a field that is not there; a key of a dict whose `__eq__` raises
        else: return True
        return False

`validation.problems_of` reads the same schema step by step: what it finds wrong with a value, and only that, is refused here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphbus_core.model.schema import NULL, STR, Field, Schema, Type
from graphbus_core.model.texts import is_text_of
from graphbus_core.model.values import (
    fields_of,
    is_bytes,
    is_float,
    is_int,
    is_str,
    items_of,
    mapping_of,
    members_of,
    plain_of,
    word_of,
)

Fits = Callable[[Any], bool]
Gate = Callable[[Any], Any]


class Misfit(Exception):  # noqa: N818 - it ends a check, and is no error
    """A value is not as it is wanted: raised and caught within one check, so that what follows is outside of its `try`."""


_LEAVES = {
    "null": "{first} is None",
    "bool": "({first} is False or {v} is True)",
    "int": "(type({first}) is int or is_int({v}))",
    "float": "(type({first}) is float or type({v}) is int or is_float({v}))",
    "str": "(type({first}) is str or is_str({v}))",
    "bytes": "(type({first}) is bytes or is_bytes({v}))",
}
"""Kind -> when a value is of it; `first` is how it is spelled where it is looked at first, and where it may get its name."""

_LONG = 1 << 64
_EXACT = {
    "null": _LEAVES["null"],
    "bool": _LEAVES["bool"],
    "int": f"type({{first}}) is int and -{_LONG} < {{v}} < {_LONG}",
    "float": f"(type({{first}}) is float or type({{v}}) is int and -{_LONG} < {{v}} < {_LONG})",
    "str": "type({first}) is str",
    "bytes": "False",
}
"""Kind -> when a value is one that JSON surely has; of ints, those of a common length."""

_LOOKS: dict[str, Any] = {
    each.__name__: each
    for each in (fields_of, is_bytes, is_float, is_int, is_str, items_of, mapping_of, members_of, plain_of, word_of)
}
TOP = 2
_MAX_INDENT = 12
"""What is nested deeper gets a function of its own: Python nests 20 blocks at most."""
_OF_TEXT = frozenset({"str", "any", "unknown"})
"""Kinds of keys that every text is; other keys are no JSON, or are looked at closely."""
_SCALARS = frozenset({float, bool, type(None)})


def generate(wanted: Schema | Type, *, is_closed: bool = False) -> Fits:
    """Make a function that tells whether a value is as it is wanted; it runs no code of a value that is no Mapping."""
    fits: Fits = Text().function(wanted, is_closed=is_closed)
    return fits


def generate_gate(wanted: Schema | Type, otherwise: Gate, *, is_closed: bool = False) -> Gate:
    """Make a function that gives back a value that is as it is wanted; what becomes of every other, `otherwise` decides."""
    return Text(otherwise).function(wanted, is_closed=is_closed)


def generate_plain_gate(wanted: Schema | Type, otherwise: Gate, *, limit: int) -> Gate:
    """Make a function that gives a value back when it is a usual one: plain dicts and lists with nothing unlisted in them.

    Such a value fits, is JSON, and its size is not over the limit. What becomes of every other, `otherwise` decides.
    """
    return _PlainText(otherwise, limit).function(wanted, is_closed=True)


def _is_leaf(of: Type) -> bool:
    """True for what a look at its class tells: a `str` with a name is the text of a date or the like."""
    return of.kind in _LEAVES and (of.kind != "str" or not of.name)


class Text:
    """The text of one check while it is written; `names` holds what it refers to."""

    def __init__(self, otherwise: Gate | None = None) -> None:
        self.fails, self.ends, self.last = "return False", "return True", "return False"
        if otherwise is not None:
            self.fails, self.ends, self.last = "raise Misfit", "return v", "return otherwise(v)"
        self.names: dict[str, Any] = {**_LOOKS, "otherwise": otherwise, "Misfit": Misfit}
        self.names["__tracebackhide__"] = True  # there is no line of source to show
        self._keys: dict[str, str] = {}
        self.taken: dict[str, str] = {}  # field of the value itself -> what the text calls it
        self._lines: list[str] = []
        self._needed: list[str] = []  # what must be true before the next line; one `if` asks for all of it
        self._indent = TOP
        self._count = 0

    def function(self, wanted: Schema | Type, *, is_closed: bool = False) -> Gate:
        """Write the text for a value of this type and compile it."""
        self.write("pass")
        if isinstance(wanted, Schema):
            self.record(wanted.fields, "v", is_closed=is_closed and not wanted.is_open)
        else:
            self.value(wanted, "v")
        self.ask()
        lines = [
            "def check(v):",
            "    try:",
            *self._lines,
            "    except Exception: pass",
            "    else:",
            *self.after(),
            f"    {self.last}",
        ]
        exec(compile("\n".join(lines), "<a check made from a schema>", "exec"), self.names)  # noqa: S102 - no text of users
        made: Any = self.names["check"]
        code = made.__code__
        made.__code__ = code.replace(co_consts=tuple(map(self._as_it_is, code.co_consts)))
        gate: Gate = made
        return gate

    def _as_it_is(self, constant: Any) -> Any:
        return self._keys.get(constant, constant) if type(constant) is str else constant

    def after(self) -> list[str]:
        """The lines for a value in which nothing was wrong."""
        return [f"        {self.ends}"]

    def write(self, line: str) -> None:
        """Write a line, after the `if` for what is needed before it."""
        self.ask()
        self._lines.append("    " * self._indent + line)

    def need(self, condition: str) -> None:
        """Let a value be refused for which this is not so."""
        self._needed.append(condition)

    def ask(self) -> None:
        """Write the `if` for what is needed: one for many, so that a value that fits is never in for a jump."""
        needed, self._needed = self._needed, []
        if needed:
            self._lines.append(f"{'    ' * self._indent}if not ({' and '.join(needed)}): {self.fails}")

    def fresh(self) -> str:
        """Give a name that the text does not use yet."""
        self._count += 1
        return f"v{self._count}"

    def key(self, name: str) -> str:
        """Give what stands for the name of a field in the text, until it is compiled: a constant costs less than a global."""
        stand_in = f"k{len(self._keys)}"
        self._keys[stand_in] = name
        return repr(stand_in)

    def constant(self, value: object) -> str:
        """Give the name under which the text finds a value."""
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def inside(self, header: str, write: Callable[[], None]) -> None:
        """Write a block: its header, and below it at least one line."""
        self.write(header)
        self._indent += 1
        self.write("pass")
        write()
        self.ask()
        self._indent -= 1

    def value(self, wanted: Type, v: str) -> None:
        """Write the check of one value, which the text calls `v`."""
        if _is_leaf(wanted):
            self.leaf(wanted.kind, v, v)
        elif wanted.kind == "str":
            self.text(wanted, v)
        elif wanted.kind in ("unknown", "any"):
            self.anything(v)
        elif self._indent > _MAX_INDENT:
            self.deeper(wanted, v)
        elif wanted.kind == "record":
            self.record(wanted.fields, v)
        else:
            _COMPOUND[wanted.kind](self, wanted, v)

    def deeper(self, wanted: Type, v: str) -> None:
        """Write the check of a value that is nested too deep to be looked at in place."""
        self.need(f"{self.constant(generate(wanted))}({v})")

    def leaf(self, kind: str, v: str, first: str) -> None:
        """Write the check of a text, a number or the like."""
        self.need(_LEAVES[kind].format(v=v, first=first))

    def text(self, wanted: Type, v: str) -> None:
        """Write the check of a date or the like."""
        self.need(f"{self.constant(is_text_of(wanted.name))}({v})")

    def anything(self, v: str) -> None:
        """Write nothing: what is unknown fits."""

    def container(self, v: str, exact: str, look: str) -> str:
        """Write that a value is a dict or list, or can be read as one, and give what the text calls that."""
        found = self.fresh()
        self.write(f"{found} = {v} if type({v}) is {exact} else {look}({v})")
        self.need(f"{found} is not None")
        return found

    def record(self, fields: tuple[Field, ...], v: str, *, is_closed: bool = False) -> None:
        """Write the check of each field, and of their number when there may be no others."""
        found = self.container(v, "dict", "fields_of")
        needed = sum(field.required for field in fields)
        count = self.fresh() if is_closed and needed < len(fields) else ""
        if count:
            self.write(f"{count} = {needed}")
        for field in fields:
            name, inner = self.key(field.name), self.fresh()
            if v == "v":  # a field inside of another may have the same name
                self.taken[field.name] = inner
            if field.required and _is_leaf(field.type):
                self.leaf(field.type.kind, inner, f"({inner} := {found}[{name}])")
            elif field.required:
                self.write(f"{inner} = {found}[{name}]")
                self.value(field.type, inner)
            else:
                self.inside(f"if {name} in {found}:", lambda: self._optional(field, found, name, inner, count))  # noqa: B023
        if is_closed:
            self.need(f"len({found}) == {count or needed}")

    def _optional(self, field: Field, found: str, name: str, inner: str, count: str) -> None:
        self.write(f"{inner} = {found}[{name}]")
        self.value(field.type, inner)
        if count:
            self.write(f"{count} += 1")

    def items(self, wanted: Type, v: str) -> None:
        """Write the check of a list or set."""
        look = "members_of" if wanted.kind == "set" else "items_of"
        found, item = self.container(v, "list", look), self.fresh()
        if wanted.args:
            self.inside(f"for {item} in {found}:", lambda: self.value(wanted.args[0], item))

    def row(self, wanted: Type, v: str) -> None:
        """Write the check of a tuple."""
        found = self.container(v, "list", "items_of")
        if not wanted.args:
            return
        self.need(f"len({found}) == {len(wanted.args)}")
        for at, part in enumerate(wanted.args):
            item = self.fresh()
            self.write(f"{item} = {found}[{at}]")
            self.value(part, item)

    def entries(self, wanted: Type, v: str) -> None:
        """Write the check of a dict whose keys are data."""
        found = self.container(v, "dict", "mapping_of")
        if wanted.args:
            key, item = self.fresh(), self.fresh()
            self.inside(f"for {key}, {item} in {found}.items():", lambda: self._entry(wanted, key, item))

    def _entry(self, wanted: Type, key: str, item: str) -> None:
        self.value(wanted.args[0], key)
        self.value(wanted.args[1], item)

    def union(self, wanted: Type, v: str) -> None:
        """Write the check of a choice."""
        choices = [choice for choice in wanted.args if choice != NULL]
        if len(choices) == 1 and NULL in wanted.args:
            self.inside(f"if {v} is not None:", lambda: self.value(choices[0], v))
        else:  # a function for each choice, because one may be wrong and the next right
            fits = [self.constant(generate(choice)) for choice in wanted.args]
            self.need(f"({' or '.join(f'{each}({v})' for each in fits) or 'False'})")

    def literal(self, wanted: Type, v: str) -> None:
        """Write the check of one of some values."""
        allowed = self.constant(frozenset((type(value), value) for value in wanted.values))
        kinds = self.constant(frozenset(map(type, wanted.values)))
        plain = self.fresh()
        self.write(f"{plain} = {'word_of' if wanted.name else 'plain_of'}({v})")
        self.need(f"type({plain}) in {kinds} and (type({plain}), {plain}) in {allowed}")


class _PlainText(Text):
    """The text of a check that also adds up the size of the value, as `payload.freeze` counts it or a little more."""

    def __init__(self, otherwise: Gate, limit: int) -> None:
        super().__init__(otherwise)
        self.names["scalars"] = _SCALARS
        self._limit = limit
        self._fixed = 0
        self._sizes: list[str] = []  # terms of a sum that is made once, at the end

    def after(self) -> list[str]:
        sizes = " + ".join(self._sizes) or "0"
        return [f"        return v if {sizes} <= {self._limit - self._fixed} else otherwise(v)"]

    def add(self, size: int, variable: str = "") -> None:
        """Count a size: here and now, or for each item when the check runs."""
        if self._indent > TOP:
            if "size" not in self._sizes:
                self._lines.insert(0, "        size = 0")
                self._sizes.append("size")
            self.write(f"size += {' + '.join(filter(None, (variable, str(size or ''))))}")
        else:
            self._fixed += size
            self._sizes += [variable] * bool(variable)

    def leaf(self, kind: str, v: str, first: str) -> None:
        self.need(_EXACT[kind].format(v=v, first=first))
        if kind == "str":
            self.add(0, f"len({v})")

    def text(self, wanted: Type, v: str) -> None:
        self.leaf("str", v, v)
        super().text(wanted, v)

    def deeper(self, wanted: Type, v: str) -> None:
        self.need("False")

    def anything(self, v: str) -> None:
        self.inside(f"if type({v}) is str:", lambda: self.add(0, f"len({v})"))
        self.inside(f"elif type({v}) is int:", lambda: self.need(f"-{_LONG} < {v} < {_LONG}"))
        self.write(f"elif type({v}) not in scalars: {self.fails}")

    def container(self, v: str, exact: str, look: str) -> str:
        self.need(f"type({v}) is {exact}" if look != "members_of" else "False")
        return v

    def record(self, fields: tuple[Field, ...], v: str, *, is_closed: bool = False) -> None:
        self.add(2 + sum(len(field.name) + 6 for field in fields))
        super().record(fields, v, is_closed=True)

    def items(self, wanted: Type, v: str) -> None:
        super().items(wanted, v)
        self.add(2, f"4 * len({v})")
        if not wanted.args:
            self.need(f"not {v}")

    def row(self, wanted: Type, v: str) -> None:
        super().row(wanted, v)
        self.add(2, f"4 * len({v})")
        if not wanted.args:
            self.need(f"not {v}")

    def entries(self, wanted: Type, v: str) -> None:
        super().entries(wanted, v)
        self.add(2, f"6 * len({v})")
        if not wanted.args:
            self.need(f"not {v}")

    def _entry(self, wanted: Type, key: str, item: str) -> None:
        self.leaf("str" if wanted.args[0].kind in _OF_TEXT else "bytes", key, key)
        if wanted.args[0].kind == "str" and wanted.args[0] != STR:
            super().text(wanted.args[0], key)
        self.value(wanted.args[1], item)

    def literal(self, wanted: Type, v: str) -> None:
        self.anything(v)
        super().literal(wanted, v)

    def union(self, wanted: Type, v: str) -> None:
        others = [choice for choice in wanted.args if choice != NULL]
        if len(others) != 1 or len(wanted.args) != 2 or not _is_leaf(others[0]):
            self.anything(v)  # a choice of one thing or None is looked at in place, all else must be a text or number
        super().union(wanted, v)


_COMPOUND: dict[str, Callable[[Text, Type, str], None]] = {
    "list": lambda text, wanted, v: text.items(wanted, v),
    "set": lambda text, wanted, v: text.items(wanted, v),
    "tuple": lambda text, wanted, v: text.row(wanted, v),
    "dict": lambda text, wanted, v: text.entries(wanted, v),
    "union": lambda text, wanted, v: text.union(wanted, v),
    "literal": lambda text, wanted, v: text.literal(wanted, v),
}
