"""Annotations of live functions: what is written as text is looked up where the function was defined."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from graphbus_core.isolation import attempt

_MAX_STEPS = 50
"""From one name to the next: a name may stand for itself."""


class Unresolved(str):
    """The text of an annotation whose names are not to be had at run time."""

    __slots__ = ()


def annotation_of(function: Any, name: str) -> object:
    """Give the annotation of a parameter; None for one without, `Unresolved` for one that names what is not there.

    Each parameter is looked up by itself: what another one, or the result, is annotated with does not matter.
    """
    written = function.__annotations__.get(name)
    annotation = meant_by(written)
    scope = function.__globals__
    if parameters := getattr(function, "__type_params__", ()):  # `def take[T]`, of Python 3.12
        scope = scope | {each.__name__: each for each in parameters}
    for _ in range(_MAX_STEPS):
        if not isinstance(annotation, str):
            break
        found, error = _evaluate(annotation, scope)
        if error is not None:
            found, error = _evaluate(annotation, scope | _imported_for_checkers(scope, annotation))
        if error is not None:
            return Unresolved(annotation)
        annotation = meant_by(found)
    if isinstance(annotation, str) or type_alias_of(annotation) is not None:
        return Unresolved(written)
    return _with_inner_texts(annotation, scope) if get_args(annotation) else annotation


def type_alias_of(annotation: Any) -> Any:
    """Give what `type Orders = list[Order]` has made, also of a `Many[Order]`; None for an annotation that names none."""
    origin = get_origin(annotation)
    named = annotation if origin is None else origin
    return named if type(named).__name__ == "TypeAliasType" else None  # Python 3.11 has it in typing_extensions only


def meant_by(annotation: Any) -> Any:
    """Give what an annotation stands for when it names a `type` alias; it is given back if that is not to be had."""
    meant = annotation
    for _ in range(_MAX_STEPS):
        alias = type_alias_of(meant)
        if alias is None:
            return meant
        value, error = attempt(lambda alias=alias: alias.__value__)  # type: ignore[misc]
        given, wanted = get_args(meant), alias.__type_params__
        if error is not None or not all(isinstance(each, TypeVar) for each in wanted):
            break
        meant = filled(value, dict(zip(wanted, given, strict=False)))
    return annotation


def filled(hint: Any, variables: Mapping[Any, Any]) -> Any:
    """The annotation with these types in the place of its type variables."""
    if isinstance(hint, TypeVar):
        return variables.get(hint, hint)
    open_ones = () if isinstance(hint, type) and get_origin(hint) is None else getattr(hint, "__parameters__", ())
    return hint[tuple(variables.get(each, each) for each in open_ones)] if variables and open_ones else hint


def _evaluate(text: str, scope: dict[str, Any]) -> tuple[object, Exception | None]:
    return attempt(lambda: eval(text, scope))  # noqa: S307 - the text is the user's own code


def _with_inner_texts(annotation: object, scope: dict[str, Any]) -> object:
    """The annotation with what is text inside of it looked up, as in `list["Item"]`; as it is if that is not to be had."""

    class Annotated:
        __annotations__ = {"it": annotation}

    for look in (lambda: scope, lambda: scope | _imported_for_checkers(scope, repr(annotation))):
        hints, _ = attempt(lambda look=look: get_type_hints(Annotated, look(), include_extras=True))  # type: ignore[misc]
        if hints is not None:
            return hints["it"]
    return annotation


def _imported_for_checkers(scope: dict[str, Any], text: str) -> dict[str, Any]:
    """The names of the text that their module imports under `if TYPE_CHECKING:`, as far as they are to be had."""
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
