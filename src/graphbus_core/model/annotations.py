"""Annotations of live functions: what is written as text is looked up where the function was defined."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

from graphbus_core.isolation import attempt


class Unresolved(str):
    """The text of an annotation whose names are not to be had at run time."""

    __slots__ = ()


def annotation_of(function: Any, name: str) -> object:
    """Give the annotation of a parameter; None for one without, `Unresolved` for one that names what is not there.

    Each parameter is looked up by itself: what another one, or the result, is annotated with does not matter.
    """
    annotation = function.__annotations__.get(name)
    scope = function.__globals__
    while isinstance(annotation, str):
        found, error = _evaluate(annotation, scope)
        if error is not None:
            found, error = _evaluate(annotation, scope | _imported_for_checkers(scope, annotation))
        if error is not None:
            return Unresolved(annotation)
        annotation = found
    return _with_inner_texts(annotation, scope) if get_args(annotation) else annotation


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
