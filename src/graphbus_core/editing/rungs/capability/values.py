"""What a name or expression may stand for, as far as it matters for what code can do.

    data       anything that only computes: parameters, results, literals
    shared     data that another module or class holds: it may be read, not changed
    outside    a module that is none of the project, or a member of one, by its dotted name; builtins as `builtins.open`
    module     a module of the project
    symbol     a function or class of the project
    object     what calling a class has made: of the project (`node`) or of elsewhere (`name`)
    self       the object that a method belongs to; `super` the same, seen as its bases
    class      the class of an object: `cls`, `type(x)`

A container counts as all of its elements together, and so does what may be one thing or another.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from graphbus_core.editing.rungs.capability.uses import FileUses

ValueKind = Literal["data", "shared", "outside", "module", "symbol", "object", "self", "super", "class"]


class Value(NamedTuple):
    """One thing that an expression may stand for.

    Attributes:
        name: The dotted name of what is outside of the project.
        home: The file of the project in which it is written.
        node: The function or class; for `self`, `super`, `class` and `object` the class.
    """

    kind: ValueKind
    name: str = ""
    home: FileUses | None = None
    node: ast.AST | None = None


Values = tuple[Value, ...]
DATA = Value("data")


def union(*several: Values) -> Values:
    """Join what may be one or the other."""
    return tuple(dict.fromkeys(value for values in several for value in values)) or (DATA,)
