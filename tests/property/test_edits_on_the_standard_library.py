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

from graphbus_core.editing.edits import apply_change, reindent, symbol_text
from graphbus_core.editing.text.source_text import (
    SourceText,
    definitions,
    find_definition,
    lines_inside_strings,
    with_lf,
)
from graphbus_core.errors import EditError
from graphbus_core.model.proposals import CodeChange, Operation
from tests.symbols import find_symbol
from tests.thoroughness import examples

LIBRARY = Path(sysconfig.get_paths()["stdlib"])
FILES = sorted(
    path
    for path in LIBRARY.rglob("*.py")
    if "site-packages" not in path.parts and "lib2to3" not in path.parts and path.stat().st_size < 60_000
)
pytestmark = pytest.mark.slow
BOUNDED = settings(examples(10), deadline=None, suppress_health_check=list(HealthCheck))


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
    elif data.draw(st.booleans()) and content.isascii() and b"coding" not in content[:200]:
        ends = b"\r\n" if b"\r\n" in content else b"\n"
        content = b"# -*- coding: latin-1 -*-" + ends + content + b"# gr\xf6\xdfer" + ends
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
    flat = "@changed_by_a_test\n" + reindent(with_lf(text), indentation, "", lines_inside_strings(with_lf(text)))
    change = CodeChange(file_path="lib.py", target=name, change_type="modify", old_code=text, new_code=flat)

    result = SourceText(apply_change(content, change))

    before, after = find_definition(SourceText(content), name).node, find_definition(result, name).node
    del after.decorator_list[0]
    assert ast.dump(after) == ast.dump(before)


@BOUNDED
@given(st.data())
def test_deleting_a_symbol_takes_whole_lines_around_it_and_leaves_the_others(data: st.DataObject) -> None:
    content, name = pick(data)
    symbol = find_definition(SourceText(content), name)
    if len(symbol.body) == 1:
        return
    change = CodeChange(
        file_path="l.py",
        target=name,
        change_type="delete",
        operation="delete_symbol",
        old_code=symbol_text(content, name),
    )

    result = apply_change(content, change)

    names = [other for other in unique_symbols(content) if other != name and not other.startswith(f"{name}.")]
    assert unique_symbols(result) == names
    gone = len(content) - len(result)
    assert any(content[:at] + content[at + gone :] == result for at in range(find_symbol(content, name)[0] + 1))


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


@BOUNDED
@given(st.data())
def test_an_edit_for_another_text_is_refused(data: st.DataObject) -> None:
    content, name = pick(data)
    text = symbol_text(content, name)
    was = text.replace("\n", " \n", 1) if "\n" in text else f"{text} "
    claims: list[dict[str, str]] = [{"old_code": was + "# gone"}, {"base_sha256": "0" * 64}, {}]
    operation: Operation = data.draw(st.sampled_from(["replace_symbol", "delete_symbol"]))

    for claim in claims:
        change = CodeChange(
            file_path="l.py", target=name, change_type="modify", operation=operation, new_code=text, **claim
        )
        with pytest.raises(EditError) as refusal:
            apply_change(content, change)
        assert refusal.value.code in ("GBE303", "GBE313")


@BOUNDED
@given(st.data())
def test_a_text_that_is_there_twice_is_refused(data: st.DataObject) -> None:
    content, name = pick(data)
    text = with_lf(symbol_text(content, name))
    lines = [line for line in with_lf(SourceText(content).text).split("\n") if line.strip()]
    twice = [line for line in dict.fromkeys(lines) if lines.count(line) > 1]
    if not twice:
        return
    line = data.draw(st.sampled_from(twice))
    change = CodeChange(
        file_path="l.py", target="", change_type="modify", operation="search_replace", old_code=line, new_code="pass"
    )

    with pytest.raises(EditError) as refusal:
        apply_change(content, change)

    assert refusal.value.code == "GBE308"
    assert text in with_lf(SourceText(content).text)


@BOUNDED
@given(st.data())
def test_a_search_within_a_symbol_leaves_every_byte_outside_of_it(data: st.DataObject) -> None:
    content, name = pick(data)
    start, end = find_symbol(content, name)
    text = with_lf(symbol_text(content, name))
    line = text.split("\n")[-1]
    if text.count(line) != 1 or not line.strip() or (end - start) > 20_000:
        return
    margin = line[: len(line) - len(line.lstrip())]
    new = f"{line}\n{margin}# looked at by a test"
    change = CodeChange(
        file_path="l.py", target=name, change_type="modify", operation="search_replace", old_code=line, new_code=new
    )

    result, code = content, ""
    try:
        result = apply_change(content, change)
    except EditError as refusal:  # the line is also part of another one, or goes on
        code = refusal.code

    assert code in ("", "GBE304", "GBE305", "GBE306", "GBE308")
    assert result[:start] == content[:start]
    assert result[len(result) - (len(content) - end) :] == content[end:]


def indentation_before(content: bytes, start: int) -> str:
    line = content[:start].replace(b"\r\n", b"\n").rpartition(b"\n")[2]
    return line.rpartition(b"\f")[2].decode("latin-1").removeprefix("\xef\xbb\xbf")
