"""The standard library as a collection of every way in which Python can be written."""

from __future__ import annotations

import ast
import codecs
import re
import sysconfig
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphbus_core.editing.edits import apply_change, find_symbol, symbol_text
from graphbus_core.editing.text.indentation import shifted
from graphbus_core.editing.text.source_text import SourceText, lines_inside_strings, with_lf
from graphbus_core.editing.text.symbols import definitions, find
from graphbus_core.errors import EditError
from graphbus_core.model.proposals import CodeChange

LIBRARY = Path(sysconfig.get_paths()["stdlib"])
FILES = sorted(
    path
    for path in LIBRARY.rglob("*.py")
    if "site-packages" not in path.parts and "lib2to3" not in path.parts and path.stat().st_size < 60_000
)
pytestmark = pytest.mark.slow
BOUNDED = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def unique_symbols(data: bytes) -> list[str]:
    names = [symbol.name for symbol in definitions(SourceText(data).tree)]
    return sorted(name for name in names if names.count(name) == 1)


def pick(data: st.DataObject) -> tuple[bytes, str]:
    """Draw a file that parses and one of its symbols; CRLF and byte order marks are put in at random."""
    path = data.draw(st.sampled_from(FILES))
    content = path.read_bytes()
    try:
        SourceText(content).tree  # noqa: B018
    except EditError:
        return b"def spare(): pass\n", "spare"
    if data.draw(st.booleans()) and b"\r" not in content:
        content = content.replace(b"\n", b"\r\n")
    if data.draw(st.booleans()) and SourceText(content).encoding == "utf-8":
        content = codecs.BOM_UTF8 + content
    names = unique_symbols(content)
    if not names:
        return b"def spare(): pass\n", "spare"
    return content, data.draw(st.sampled_from(names))


@BOUNDED
@given(st.data())
def test_replacing_a_symbol_by_itself_is_refused_as_changing_nothing(data: st.DataObject) -> None:
    content, name = pick(data)
    text = symbol_text(content, name)
    change = CodeChange(file_path="lib.py", target=name, change_type="modify", old_code=text, new_code=text)

    with pytest.raises(EditError) as refusal:
        apply_change(content, change)

    assert refusal.value.code == "GBE304"


@BOUNDED
@given(st.data())
def test_replacing_a_symbol_changes_its_span_and_nothing_else(data: st.DataObject) -> None:
    content, name = pick(data)
    start, end = find_symbol(content, name)
    text = symbol_text(content, name)
    new = f"@changed_by_a_test\n{indentation_before(content, start)}{with_lf(text)}"
    change = CodeChange(file_path="lib.py", target=name, change_type="modify", old_code=text, new_code=new)

    result = apply_change(content, change)

    assert result[:start] == content[:start]
    assert result[start : len(result) - len(content) + end].startswith(b"@changed_by_a_test")
    assert result[len(result) - (len(content) - end) :] == content[end:]
    assert with_lf(symbol_text(result, name)) == new


@BOUNDED
@given(st.data())
def test_a_symbol_written_at_the_left_margin_comes_out_at_its_own_indentation(data: st.DataObject) -> None:
    content, name = pick(data)
    start, _ = find_symbol(content, name)
    indentation = indentation_before(content, start)
    text = symbol_text(content, name)
    flat = "@changed_by_a_test\n" + shifted(with_lf(text), indentation, "", lines_inside_strings(with_lf(text)))
    change = CodeChange(file_path="lib.py", target=name, change_type="modify", old_code=text, new_code=flat)

    result = SourceText(apply_change(content, change))

    before, after = find(SourceText(content), name).node, find(result, name).node
    del after.decorator_list[0]
    assert ast.dump(after) == ast.dump(before)


@BOUNDED
@given(st.data())
def test_deleting_and_adding_leave_every_other_symbol_as_it_was(data: st.DataObject) -> None:
    content, name = pick(data)
    text = symbol_text(content, name)
    names = unique_symbols(content)
    change = CodeChange(file_path="l.py", target=name, change_type="delete", operation="delete_symbol", old_code=text)

    if len(find(SourceText(content), name).body) == 1:
        return

    result = apply_change(content, change)

    rest = [other for other in names if other != name and not other.startswith(f"{name}.")]
    assert unique_symbols(result) == rest
    assert all(
        symbol_text(result, other) == symbol_text(content, other) for other in rest if not name.startswith(other)
    )


@BOUNDED
@given(st.data())
def test_an_added_import_is_the_only_new_line(data: st.DataObject) -> None:
    content, _ = pick(data)
    new = "from somewhere_else import something_new"
    change = CodeChange(file_path="l.py", target="", change_type="add", operation="add_import", new_code=new)

    result = apply_change(content, change)

    before, after = (
        [line for line in re.split(rb"\r\n|\r|\n", version.removeprefix(codecs.BOM_UTF8)) if line.strip()]
        for version in (content, result)
    )
    assert [line for line in after if line != new.encode()] == before
    assert len(after) == len(before) + 1


def indentation_before(content: bytes, start: int) -> str:
    line = content[:start].replace(b"\r\n", b"\n").rpartition(b"\n")[2]
    return line.rpartition(b"\f")[2].decode("latin-1").removeprefix("\xef\xbb\xbf")
