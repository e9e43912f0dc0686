"""What holds for every merge: over the sources of the standard library, and against git on generated texts."""

from __future__ import annotations

import codecs
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from graphbus_core.editing.merge import merge, merge_lines
from graphbus_core.editing.text.source_text import Definition, SourceText, definitions
from graphbus_core.errors import EditError
from tests.property.test_edits_on_the_standard_library import FILES
from tests.symbols import find_symbol
from tests.thoroughness import examples

pytestmark = pytest.mark.slow
BOUNDED = settings(examples(20), deadline=None, suppress_health_check=list(HealthCheck))


def pick(data: st.DataObject) -> bytes:
    """Draw a file that parses; CRLF and byte order marks are put in at random."""
    content = data.draw(st.sampled_from(FILES)).read_bytes()
    try:
        tree = SourceText(content).tree
    except EditError:
        tree = None
    assume(tree is not None and tree.body)
    if data.draw(st.booleans()) and b"\r" not in content:
        content = content.replace(b"\n", b"\r\n")
    if data.draw(st.booleans()) and SourceText(content).encoding == "utf-8":
        content = codecs.BOM_UTF8 + content
    return content


def editable(content: bytes) -> list[str]:
    """The innermost classes, functions and methods whose body begins on a line of its own."""
    found = list(definitions(SourceText(content).tree))
    names = [symbol.name for symbol in found]
    return sorted(
        symbol.name
        for symbol in found
        if names.count(symbol.name) == 1
        and is_plain(symbol.node)
        and not any(other.name.startswith(f"{symbol.name}.") for other in found)
    )


def is_plain(node: Definition) -> bool:
    return node.body[0].lineno > node.lineno and node.end_lineno is not None


def with_mark(content: bytes, name: str, mark: bytes) -> bytes:
    """Put another statement behind the last one of a symbol."""
    _, end = find_symbol(content, name)
    return content[:end] + b"; " + mark + content[end:]


@BOUNDED
@given(st.data())
def test_nothing_on_one_side_leaves_the_other(data: st.DataObject) -> None:
    base, other = pick(data), pick(data)
    assert merge(base, other, base).data == other
    assert merge(base, base, other).data == other
    assert merge(base, other, other).data == other


@BOUNDED
@given(st.data())
def test_edits_of_two_symbols_always_merge_to_both(data: st.DataObject) -> None:
    content = pick(data)
    names = editable(content)
    assume(len(names) > 1)
    one, two = data.draw(st.permutations(names))[:2]
    ours, theirs = with_mark(content, one, b"mark_of_ours = 1"), with_mark(content, two, b"mark_of_theirs = 2")
    try:
        both = with_mark(with_mark(content, one, b"mark_of_ours = 1"), two, b"mark_of_theirs = 2")
        for version in (ours, theirs, both):
            SourceText(version).tree  # noqa: B018
    except EditError:
        assume(False)
    assert merge(content, ours, theirs).data == both
    assert merge(content, theirs, ours).data == both


@BOUNDED
@given(st.data())
def test_additions_at_the_end_of_a_file_always_merge_to_both_in_the_order_of_the_sides(data: st.DataObject) -> None:
    content = pick(data)
    newline = SourceText(content).newline.encode()
    tail = b"" if content.endswith((b"\n", b"\r")) else newline
    first = content + tail + newline + b"def added_by_ours():" + newline + b"    return 1" + newline
    second = content + tail + newline + b"def added_by_theirs():" + newline + b"    return 2" + newline
    one, other = merge(content, first, second), merge(content, second, first)
    assert one.data is not None
    assert other.data is not None
    assert one.data.index(b"added_by_ours") < one.data.index(b"added_by_theirs")
    assert sorted(one.data.splitlines()) == sorted(other.data.splitlines())


def changed(lines: list[str], edits: list[tuple[int, str]]) -> list[str]:
    """Replace, delete (`-`) or insert before (`+`) lines."""
    result = list(lines)
    for at, what in sorted(edits, key=lambda edit: -edit[0]):
        if what == "-":
            del result[at : at + 1]
        elif what.startswith("+"):
            result.insert(at, what)
        else:
            result[at : at + 1] = [what]
    return result


@pytest.mark.skipif(shutil.which("git") is None, reason="git is the oracle")
@BOUNDED
@given(st.integers(0, 14), st.data())
def test_lines_merge_as_git_merges_them(count: int, data: st.DataObject) -> None:
    base = [f"line {number}" for number in range(count)]
    edits = st.lists(
        st.tuples(st.integers(0, max(count - 1, 0)), st.sampled_from(["-", "+a", "+b", "x", "y"])),
        max_size=3,
        unique_by=lambda edit: edit[0],
    )
    ours, theirs = changed(base, data.draw(edits)), changed(base, data.draw(edits))
    found = merge_lines(base, ours, theirs)
    assert (found if isinstance(found, list) else None) == git_merge(base, ours, theirs)


def git_merge(base: list[str], ours: list[str], theirs: list[str]) -> list[str] | None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        names = []
        for name, lines in (("ours", ours), ("base", base), ("theirs", theirs)):
            path = Path(folder, name)
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            names.append(str(path))
        done = subprocess.run(["git", "merge-file", "-p", *names], capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else None
