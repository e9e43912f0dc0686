"""Reads types from live annotations and classes; the compiler reads the same `Type`s from source text."""

from __future__ import annotations

import types
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from enum import Enum, EnumMeta, Flag
from types import MappingProxyType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NewType,
    NotRequired,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from graphbus_core.isolation import attempt
from graphbus_core.schema.types import (
    ANY,
    BOOL,
    BYTES,
    DICT,
    FLOAT,
    INT,
    LIST,
    NULL,
    STR,
    TEXT_TYPES,
    UNKNOWN,
    Field,
    Kind,
    Schema,
    Type,
    union,
    without_text_forms,
)
from graphbus_core.schema.values import alias_of, builtin_of

_PLAIN: dict[object, Type] = {
    str: STR,
    int: INT,
    float: FLOAT,
    bool: BOOL,
    bytes: BYTES,
    list: LIST,
    dict: DICT,
    tuple: Type("tuple"),
    set: Type("set"),
    frozenset: Type("set"),
    **dict.fromkeys((Mapping, MutableMapping), DICT),
    **dict.fromkeys((Sequence, MutableSequence), LIST),
    type(None): NULL,
    object: ANY,
    Any: ANY,
}
_BY_TEXT: dict[str, Type] = {
    **{kind.__name__: of for kind, of in _PLAIN.items() if isinstance(kind, type) and kind.__module__ == "builtins"},
    "None": NULL,
    "string": STR,
    "integer": INT,
    "number": FLOAT,
    "boolean": BOOL,
    "array": LIST,
    "null": NULL,
    "any": ANY,
}
"""Types that a schema may name as text, such as `"int"` or, as in JSON Schema, `"integer"`."""
_CONTAINERS: tuple[tuple[type | tuple[type, ...], Kind], ...] = (
    (Mapping, "dict"),
    ((set, frozenset), "set"),
    (tuple, "tuple"),
    (Sequence, "list"),
)
_OF_LITERALS = frozenset({str, int, bool, type(None)})
_TRANSPARENT = (Annotated, ClassVar, Final, Required, NotRequired)
_MAX_DEPTH = 12
_MOST_RECORDS = 500
"""How many classes are unfolded; mutually recursive classes, as of a syntax tree, would otherwise grow into millions."""


def schema_of(declared: object) -> Schema | None:
    """Return the schema of a mapping of name -> type, or of a typed class; None for None and for anything without fields."""
    if declared is None:
        return None
    found = type_of(declared)
    return Schema(found.fields) if found.kind == "record" else None


def type_of(annotation: object) -> Type:
    """Return the type of an annotation, or of a schema such as `{"sku": str}` or `[str]`.

    A recursive class is unfolded to a limited depth, less deep if it would become too large; below that, types are unknown.
    """
    for deepest in range(_MAX_DEPTH, 0, -2):
        reading = _TypeReader(deepest)
        found = reading.type_of(annotation)
        if reading.left > 0:
            break
    return found


class _TypeReader:
    """Reads one annotation, nested at most `deepest` deep; `left` is the number of classes that may still be unfolded.

    When `left` is 0, every further type is unknown.
    """

    def __init__(self, deepest: int) -> None:
        self._deepest = deepest
        self._seen: dict[type, list[tuple[_ClassField, Any]] | None] = {}
        self.left = _MOST_RECORDS

    def type_of(self, annotation: object, depth: int = 0) -> Type:
        """Return the type of an annotation at this depth of nesting; unknown below the deepest one."""
        if depth > self._deepest or not self.left:
            return UNKNOWN
        if isinstance(annotation, Mapping):
            fields = (self._read_field(str(name), of, depth) for name, of in annotation.items())
            return Type("record", fields=tuple(fields))
        if isinstance(annotation, list):
            return Type("list", args=(self.type_of(annotation[0], depth + 1),)) if annotation else LIST
        if isinstance(annotation, NewType):
            return self.type_of(annotation.__supertype__, depth + 1)
        if type_alias_of(annotation) is not None:
            return self._read_alias(resolve_alias(annotation), depth)
        origin, args = get_origin(annotation), get_args(annotation)
        return self._read_plain(annotation, depth) if origin is None else self._read_generic(origin, args, depth)

    def _read_plain(self, annotation: object, depth: int) -> Type:
        """Read an annotation without type arguments."""
        if isinstance(annotation, EnumMeta):
            return _enum_type(annotation)
        if isinstance(annotation, type) or annotation is Any:  # `Any` is a class only since Python 3.11
            known = _PLAIN.get(annotation) or TEXT_TYPES.get((annotation.__module__, annotation.__name__))
            return known or self._read_record(annotation, depth)
        if isinstance(annotation, str):
            return _BY_TEXT.get(annotation.strip(), UNKNOWN)
        return NULL if annotation is None else UNKNOWN

    def _read_alias(self, target: object, depth: int) -> Type:
        """Read the target of a `type` alias, unknown if it could not be resolved; an alias counts in `left` like a class."""
        self.left -= bool(self.left)  # never below 0
        return UNKNOWN if type_alias_of(target) is not None else self.type_of(target, depth)

    def _read_generic(self, origin: object, args: tuple[Any, ...], depth: int) -> Type:
        """Read an annotation with type arguments, such as `list[int]`, `Literal["a"]` or `int | None`."""
        if origin is Literal:
            values: Any = tuple(map(builtin_of, args))  # members of a StrEnum are text
            return Type("literal", values=values) if {*map(type, values)} <= _OF_LITERALS else UNKNOWN
        if isinstance(origin, type) and _fields_of(origin) is not None:
            variables = dict(zip(getattr(origin, "__parameters__", ()), args, strict=False))
            return self._read_record(origin, depth, variables)
        inner = tuple(self.type_of(arg, depth + 1) for arg in args if arg is not ...)
        if origin in (Union, types.UnionType):
            return union(*inner)
        if origin in _TRANSPARENT:
            return inner[0]
        return _container_type(origin, inner, is_of_any_length=... in args) if isinstance(origin, type) else UNKNOWN

    def _read_record(self, kind: type, depth: int, variables: Mapping[Any, Any] = MappingProxyType({})) -> Type:
        """Return the record of a TypedDict, dataclass, msgspec or pydantic class, with the field names of its JSON form.

        Args:
            kind: The class.
            depth: How deep the annotation is nested.
            variables: Type variable of the class -> type, as for `Page[int]`.
        """
        if kind not in self._seen:
            self._seen[kind] = _annotated_fields_of(kind)
        found = self._seen[kind]
        if found is None:
            return Type("unknown", name=kind.__name__)
        self.left -= bool(self.left)
        fields = tuple(
            self._read_field(each.json_name, fill_type_variables(hint, variables), depth, is_required=each.is_required)
            for each, hint in found
        )
        record = Type("record", name=kind.__name__, fields=fields)
        return without_text_forms(record) if hasattr(kind, "__pydantic_validator__") else record

    def _read_field(self, name: str, annotation: object, depth: int, *, is_required: bool = True) -> Field:
        """Read a field. `NotRequired` is handled here, because a TypedDict does not recognize it in annotations that are text."""
        origin = get_origin(annotation)
        needed = origin is not NotRequired and (is_required or origin is Required)
        return Field(name, self.type_of(annotation, depth + 1), needed)


def _container_type(origin: type, inner: tuple[Type, ...], *, is_of_any_length: bool) -> Type:
    """Return the type of a container class with these type arguments; unknown for any other class."""
    if origin is tuple and is_of_any_length:
        return Type("list", inner, name="tuple")
    found = next((name for kinds, name in _CONTAINERS if issubclass(origin, kinds)), None)
    return Type(found, inner) if found else UNKNOWN


def _enum_type(kind: EnumMeta) -> Type:
    """Return the literal of an Enum's values; unknown if some are neither text nor int, or if the Enum accepts other values."""
    found: dict[str, Any] = kind.__dict__["_member_map_"]
    values: Any = tuple(dict.fromkeys(builtin_of(member._value_) for member in found.values()))
    takes_others = issubclass(kind, Flag) or kind._missing_.__func__ is not Enum._missing_.__func__  # type: ignore[attr-defined]
    if not values or takes_others or not {*map(type, values)} <= {str, int}:
        return Type("unknown", name=kind.__name__)
    return Type("literal", values=values, name=kind.__name__)


def hints_of(kind: object) -> dict[str, Any]:
    """Return the annotations of a class or function; those that are text are evaluated.

    Raises:
        NameError: An annotation uses a name that does not exist at run time.
    """
    return get_type_hints(kind, include_extras=True)


class _ClassField(msgspec.Struct, frozen=True):
    """A field of a class, with its names in the class and in JSON."""

    name: str
    json_name: str
    is_required: bool


def _annotated_fields_of(kind: type) -> list[tuple[_ClassField, Any]] | None:
    """Return the fields of a typed class with their annotations; None for other classes, or if these cannot be evaluated."""
    named = _fields_of(kind)
    hints, _ = attempt(lambda: hints_of(kind)) if named is not None else (None, None)
    return None if named is None or hints is None else [(each, hints[each.name]) for each in named]


def _fields_of(kind: Any) -> list[_ClassField] | None:
    """Return the fields that the constructor of a class takes; None for a class that is not typed, or is an array in JSON."""
    if hasattr(kind, "__required_keys__"):  # a TypedDict
        return [_ClassField(name, name, name in kind.__required_keys__) for name in kind.__annotations__]
    if issubclass(kind, msgspec.Struct):
        if kind.__struct_config__.array_like:  # a JSON array
            return None
        return [_ClassField(field.name, field.encode_name, field.required) for field in msgspec.structs.fields(kind)]
    if hasattr(kind, "model_fields"):  # of pydantic
        return [
            _ClassField(name, alias_of(name, field), field.is_required()) for name, field in kind.model_fields.items()
        ]
    if hasattr(kind, "__dataclass_fields__"):
        from dataclasses import MISSING, fields

        return [
            _ClassField(each.name, each.name, each.default is MISSING and each.default_factory is MISSING)
            for each in fields(kind)
            if each.init
        ]
    return None


# --- annotations of functions ---------------------------------------------------------------

_HAS_VAR_KEYWORDS = 0x08  # `**others`, among the flags of a code object
_MAX_STEPS = 50
"""How many aliases or names are followed; a name may refer to itself."""


class Unresolved(str):
    """The text of an annotation that cannot be evaluated, because it uses a name that does not exist at run time."""

    __slots__ = ()


def annotation_of(function: Any, name: str) -> object:
    """Return the evaluated annotation of a parameter, or of the result (`"return"`).

    None if it has no annotation; `Unresolved` if the evaluation fails. Each annotation is evaluated by itself, so that an invalid
    one does not affect the others. Evaluation runs the imports under `if TYPE_CHECKING:` that it needs.
    """
    written = function.__annotations__.get(name)
    annotation = resolve_alias(written)
    scope = function.__globals__
    if parameters := getattr(function, "__type_params__", ()):  # `def take[T]`, of Python 3.12
        scope = scope | {each.__name__: each for each in parameters}
    for _ in range(_MAX_STEPS):
        if not isinstance(annotation, str):
            break
        found, error = _evaluate_text(annotation, scope)
        if error is not None:
            found, error = _evaluate_text(annotation, scope | _import_for_type_checking(scope, annotation))
        if error is not None:
            return Unresolved(annotation)
        annotation = resolve_alias(found)
    if isinstance(annotation, str) or type_alias_of(annotation) is not None:
        return Unresolved(written)
    return _evaluate_inner_texts(annotation, scope) if get_args(annotation) else annotation


def arguments_of(function: Any) -> Schema:
    """Return the schema of a method's arguments without `self`. A default makes one optional; `**kwargs` opens the schema."""
    taken = unwrap_function(function)
    code = taken.__code__
    skipped = 0 if isinstance(function, staticmethod) else 1
    names = code.co_varnames[skipped : code.co_argcount + code.co_kwonlyargcount]
    optional = _names_with_default(taken)
    fields = tuple(Field(each, _annotated_type(taken, each), each not in optional) for each in names)
    return Schema(fields, is_open=bool(code.co_flags & _HAS_VAR_KEYWORDS))


def result_of(function: Any) -> Schema | None:
    """Return the schema of the result of a method from its annotation; None if that is not a record."""
    found = _annotated_type(unwrap_function(function), "return")
    return Schema(found.fields) if found.kind == "record" else None


def mark_defaults_optional(schema: Schema, function: Any) -> Schema:
    """Return the schema of a method's arguments with each field made optional whose parameter has a default."""
    optional = _names_with_default(unwrap_function(function))
    fields = (Field(each.name, each.type, each.required and each.name not in optional) for each in schema.fields)
    return Schema(tuple(fields), schema.is_open) if optional else schema


def unwrap_function(function: Any) -> Any:
    """Return the plain function inside of a bound method, a staticmethod, and wrappers made with `functools.wraps`."""
    function = getattr(function, "__func__", function)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def _names_with_default(function: Any) -> frozenset[str]:
    """Return the names of the parameters that have a default; none for an object without Python code."""
    code = getattr(function, "__code__", None)
    if code is None:
        return frozenset()
    count, defaults = code.co_argcount, function.__defaults__ or ()
    return frozenset((*code.co_varnames[count - len(defaults) : count], *(function.__kwdefaults__ or ())))


def _annotated_type(function: Any, name: str) -> Type:
    """Return the type of a parameter or of `"return"`; unknown without an annotation."""
    return type_of(annotation_of(function, name)) if name in function.__annotations__ else UNKNOWN


def type_alias_of(annotation: Any) -> Any:
    """Return the alias object of `type Orders = list[Order]` that an annotation names, also as `Many[Order]`; else None."""
    origin = get_origin(annotation)
    named = annotation if origin is None else origin
    # By its name, because before Python 3.12 the class is in typing_extensions only.
    return named if type(named).__name__ == "TypeAliasType" else None


def resolve_alias(annotation: Any) -> Any:
    """Return what a `type` alias stands for; an annotation that is no alias, or cannot be evaluated, is returned unchanged."""
    resolved = annotation
    for _ in range(_MAX_STEPS):
        alias = type_alias_of(resolved)
        if alias is None:
            return resolved
        value, error = attempt(lambda alias=alias: alias.__value__)  # type: ignore[misc]
        arguments, parameters = get_args(resolved), alias.__type_params__
        if error is not None or not all(isinstance(each, TypeVar) for each in parameters):
            break
        resolved = fill_type_variables(value, dict(zip(parameters, arguments, strict=False)))
    return annotation


def fill_type_variables(hint: Any, variables: Mapping[Any, Any]) -> Any:
    """Return an annotation in which the type variables are replaced; `variables` maps each of them to its type."""
    if isinstance(hint, TypeVar):
        return variables.get(hint, hint)
    unfilled = () if isinstance(hint, type) and get_origin(hint) is None else getattr(hint, "__parameters__", ())
    return hint[tuple(variables.get(each, each) for each in unfilled)] if variables and unfilled else hint


def _evaluate_text(text: str, scope: dict[str, Any]) -> tuple[object, Exception | None]:
    """Return `(value, None)` of an annotation that is text, or `(None, error)` if its evaluation fails."""
    return attempt(lambda: eval(text, scope))  # noqa: S307 - the text is the user's own code


def _evaluate_inner_texts(annotation: object, scope: dict[str, Any]) -> object:
    """Return an annotation with the texts inside of it evaluated, as in `list["Item"]`; unchanged if that fails."""

    class Holder:  # `get_type_hints` evaluates nested texts, but accepts only classes and functions
        __annotations__ = {"it": annotation}

    for make_scope in (lambda: scope, lambda: scope | _import_for_type_checking(scope, repr(annotation))):
        hints, _ = attempt(lambda make_scope=make_scope: get_type_hints(Holder, make_scope(), include_extras=True))  # type: ignore[misc]
        if hints is not None:
            return hints["it"]
    return annotation


def _import_for_type_checking(scope: dict[str, Any], text: str) -> dict[str, Any]:
    """Run those imports under `if TYPE_CHECKING:` of a module that bind a name in `text`; return a namespace with what they bind.

    `scope` is the namespace of the module. An import that fails is skipped.
    """
    import ast
    from pathlib import Path

    tree, _ = attempt(lambda: ast.parse(Path(scope["__file__"]).read_bytes()))
    names = {name: scope.get(name) for name in ("__name__", "__package__", "__spec__")}
    for block in tree.body if tree else ():
        if not (isinstance(block, ast.If) and ast.unparse(block.test).endswith("TYPE_CHECKING")):
            continue
        for statement in block.body:
            if isinstance(statement, ast.Import | ast.ImportFrom) and any(
                (each.asname or each.name).partition(".")[0] in text for each in statement.names
            ):
                code = compile(ast.Module([statement], []), str(scope["__file__"]), "exec")
                attempt(lambda code=code: exec(code, names))  # type: ignore[misc]  # noqa: S102 - as above
    return names
