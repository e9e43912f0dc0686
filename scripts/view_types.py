"""Writes the messages of the view as TypeScript, so that `tsc` checks the code of the page against `view/messages.py`.

python -m scripts.view_types           writes tests/browser/contract.d.ts
python -m scripts.view_types --check   exit status 1 if it is not what it would write
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import inspect

from graphbus_core.view import messages

FILE = Path(__file__).resolve().parents[1] / "tests" / "browser" / "contract.d.ts"
_HEAD = "/** What crosses `/view/…`: written by scripts/view_types.py from view/messages.py. */\n"
_NAMES = {
    inspect.StrType: "string", inspect.BoolType: "boolean", inspect.NoneType: "null", inspect.AnyType: "unknown",
    inspect.IntType: "number", inspect.FloatType: "number",
}  # fmt: skip


def main(arguments: list[str]) -> int:
    """Write the file, or check it."""
    written = _HEAD + "\n".join(_declarations())
    if "--check" not in arguments:
        FILE.write_text(written, encoding="utf-8")
        return 0
    if FILE.read_text(encoding="utf-8") != written:
        print(f"{FILE.name} is not what messages.py says: run `python -m scripts.view_types`")
        return 1
    return 0


def _declarations() -> Iterator[str]:
    structs = [
        each
        for each in vars(messages).values()
        if isinstance(each, type) and issubclass(each, msgspec.Struct) and each.__module__ == messages.__name__
    ]
    for info in inspect.multi_type_info(structs):
        assert isinstance(info, inspect.StructType)
        if info.fields:
            fields = [f"  {field.encode_name}: {_type(field.type)};" for field in info.fields]
            yield "\n".join([f"export interface {info.cls.__name__} {{", *fields, "}", ""])


def _type(info: inspect.Type) -> str:
    found = "unknown"
    match info:
        case inspect.StructType():
            found = info.cls.__name__
        case inspect.LiteralType():
            found = " | ".join(f'"{value}"' for value in info.values)
        case inspect.VarTupleType() | inspect.ListType():
            found = f"Array<{_type(info.item_type)}>"
        case inspect.TupleType():
            found = f"[{', '.join(map(_type, info.item_types))}]"
        case inspect.DictType():
            found = f"Record<string, {_type(info.value_type)}>"
        case inspect.UnionType():
            found = " | ".join(sorted(map(_type, info.types)))
        case _:
            found = next((name for kind, name in _NAMES.items() if isinstance(info, kind)), found)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
