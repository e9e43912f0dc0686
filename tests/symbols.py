"""Where a symbol is in the bytes of its file."""

from __future__ import annotations

import codecs

from graphbus_core.editing.edits import symbol_text
from graphbus_core.editing.text.source_text import SourceText, find_definition, start_of


def find_symbol(data: bytes, target: str) -> tuple[int, int]:
    """Give the place of a class, function or method, from its first decorator to its last statement: `data[start:end]`."""
    source = SourceText(data)
    encoding = "utf-8" if source.encoding == "utf-8-sig" else source.encoding
    mark = len(codecs.BOM_UTF8) if source.encoding == "utf-8-sig" else 0
    start = mark + len(source.text[: start_of(source, find_definition(source, target).node)].encode(encoding))
    return start, start + len(symbol_text(data, target).encode(encoding))
