"""A 3-way merge of Python files, first by definitions, then by lines. Pure functions; a conflict is a value, never a marker.

      base
     /    \\
  ours    theirs        a definition that one side has changed is taken from there; one that both have changed is merged by lines
     \\    /
      merged            parses, or there is a conflict

Lines keep their line ends, and the merged file has the encoding of the base.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from typing import NamedTuple

from graphbus_core.editing.text.source_text import Definition, SourceText, parse
from graphbus_core.errors import EditError


class Merged(NamedTuple):
    """The result of a merge.

    Attributes:
        data: The merged bytes; None if there is a conflict.
        conflicts: The parts that both sides have changed in different ways.
        reason: Why there are neither bytes nor conflicts: the merged text does not parse, or cannot be encoded.
    """

    data: bytes | None
    conflicts: tuple[Conflict, ...] = ()
    reason: str = ""


class Conflict(NamedTuple):
    """A part that both sides have changed in different ways: the qualified name of its definition, if any, and both texts."""

    symbol: str
    ours: str
    theirs: str


def merge(base: bytes, ours: bytes, theirs: bytes) -> Merged:
    """Merge two changes of one file; where both add a definition at the same place, that of `ours` comes first.

    Raises:
        EditError: One of the three versions cannot be decoded.
    """
    if theirs in (ours, base):
        return Merged(ours)
    if ours == base:
        return Merged(theirs)
    sides = [SourceText(data) for data in (base, ours, theirs)]
    was, mine, its = (_split_lines(side) for side in sides)
    found = _merge_blocks(was, mine, its) or merge_lines(was, mine, its)
    if isinstance(found, tuple):  # conflicts; those of whole definitions are easier to understand
        return Merged(None, _find_conflicts(was, mine, its) or found)
    text = "".join(found)
    was_terminated, *are_terminated = (side.text.endswith(("\n", "\r")) for side in sides)
    if not any(are_terminated) or (was_terminated and not all(are_terminated)):  # a side has removed the last line end
        text = text.removesuffix("\n").removesuffix("\r")
    try:
        parse(text)
        return Merged(sides[0].with_text(text).data)
    except SyntaxError as reason:
        return Merged(None, (), f"line {reason.lineno}: {reason.msg}")
    except EditError as error:  # the encoding of the base cannot express the text
        return Merged(None, (), str(error.data["reason"]))


def _split_lines(source: SourceText) -> list[str]:
    """Return the lines with their line ends; a last line without one gets one."""
    lines = [source.text[start:end] for start, end in pairwise([*source.line_starts, len(source.text)])]
    return [*lines[:-1], lines[-1] + source.newline] if lines[-1] else lines[:-1]


# --- by lines ----------------------------------------------------------------------------------


def merge_lines(base: list[str], ours: list[str], theirs: list[str]) -> list[str] | tuple[Conflict, ...]:
    """Merge two changes of a text line by line; return the list of merged lines, or a tuple of the conflicts."""
    merged: list[str] = []
    conflicts: list[Conflict] = []
    at, ours_at, theirs_at = 0, 0, 0
    for start, ours_start, theirs_start, size in _common_runs(base, ours, theirs):
        was, mine, its = base[at:start], ours[ours_at:ours_start], theirs[theirs_at:theirs_start]
        if mine in (was, its):  # `ours` has not changed these lines, or both have in the same way
            merged += its
        elif its == was:
            merged += mine
        else:
            conflicts.append(Conflict("", "".join(mine), "".join(its)))
        at, ours_at, theirs_at = start + size, ours_start + size, theirs_start + size
        merged += base[start:at]
    return tuple(conflicts) or merged


def _common_runs(base: list[str], ours: list[str], theirs: list[str]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the runs of lines common to all three: start in each, and length. The last one is an empty run at the end."""
    one, other = _matching_runs(base, ours), _matching_runs(base, theirs)
    left, right = next(one, None), next(other, None)
    while left and right:
        start, end = max(left[0], right[0]), min(left[0] + left[2], right[0] + right[2])
        if start < end:
            yield start, left[1] + start - left[0], right[1] + start - right[0], end - start
        if left[0] + left[2] < right[0] + right[2]:  # go on with the run that ends first in the base
            left = next(one, None)
        else:
            right = next(other, None)
    yield len(base), len(ours), len(theirs), 0


def _matching_runs(base: list[str], other: list[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the runs of equal lines: start in `base`, start in `other`, and length; the last one is empty, at the end."""
    from difflib import SequenceMatcher

    for match in SequenceMatcher(None, base, other, autojunk=False).get_matching_blocks():
        yield match.a, match.b, match.size


# --- by blocks ----------------------------------------------------------------------------------
#
# Every line belongs to exactly one block: a definition with the lines above it, an import, or a run of other statements. A
# class is a block of blocks. If the blocks of the three versions cannot be matched, the merge falls back to lines.

_Key = tuple[str, str]
_MAX_LINE = 120


class _LineBlock(NamedTuple):
    """Some lines, with a key that identifies them in all versions. `parts` are the blocks of a class body."""

    key: _Key
    lines: list[str]
    parts: dict[_Key, _LineBlock] = {}  # noqa: RUF012 - never filled


_Blocks = dict[_Key, _LineBlock]


class _CannotMerge(Exception):  # noqa: N818 - control flow, not a failure
    """The blocks of the versions cannot be matched, or one of them has a conflict."""


def _merge_blocks(base: list[str], ours: list[str], theirs: list[str]) -> list[str] | None:
    """Merge two changes of a Python text block by block; None if its blocks cannot be matched, or one has a conflict."""
    try:
        return _merge_versions(*(_split_text(lines) for lines in (base, ours, theirs)))
    except _CannotMerge:
        return None


# --- splitting a text into blocks ------------------------------------------------------------


def _split_text(lines: list[str]) -> _Blocks:
    """Split the lines of a file into blocks; raise `_CannotMerge` if they do not parse."""
    try:
        tree = parse("\n".join(line.rstrip("\r\n") for line in lines))
    except SyntaxError:
        raise _CannotMerge from None
    found = _split_statements(tree.body, lines, 1, "")
    used = sum(len(block.lines) for block in found.values())
    used += _add_comment_block(found, [*lines[used:], ""])
    if used < len(lines):  # what follows the last statement and its comments
        found["tail", ""] = _LineBlock(("tail", ""), lines[used:])
    return found


def _split_statements(body: list[ast.stmt], lines: list[str], first: int, owner: str) -> _Blocks:
    """Return the blocks of a list of statements, which begins at line `first` (from 1) of `lines`.

    A definition, an import and an assignment to a name each begin a block; other statements in a row form a run. `owner` is the
    prefix of names in a class, such as `Order.`; empty in the module.
    """
    found: _Blocks = {}
    last, key = first - 1, ("run", owner)
    for node in body:
        end = node.end_lineno or node.lineno
        own = _statement_key(node, owner)
        if own is None and key[0] != "run":
            key = "run", f"{owner} {key}"  # a run is identified by the block before it
        if _first_line(node) > last and own is not None:
            last += _add_comment_block(found, lines[last : _first_line(node) - 1])
            key = _unique_key(own, found)
            found[key] = _LineBlock(key, lines[last:end], _split_class(node, lines, last + 1, key[1]))
        else:  # a further statement of a run, or one on the same line as the block before
            before = found[key].lines if key in found else []
            found[key] = _LineBlock(key, before + lines[last:end])
        last = end
    return found


def _add_comment_block(found: _Blocks, between: list[str]) -> int:
    """Add a block for the comments in lines between two statements that a blank line separates from the second one.

    Returns:
        The number of lines in the block, 0 if there is none; the other lines belong to the second statement.
    """
    blank = [index for index, line in enumerate(between) if index and not line.strip() and between[index - 1].strip()]
    remark = between[: blank[-1]] if blank else []
    if remark:
        key = _unique_key(("remark", "\n".join(remark).strip()), found)
        found[key] = _LineBlock(key, remark)
    return len(remark)


def _unique_key(key: _Key, known: _Blocks) -> _Key:
    """Return the key, or if it is known already the key with `#2`, `#3` and so on appended to its name."""
    names = (f"{key[1]}#{number}" if number > 1 else key[1] for number in count(1))
    return next((key[0], name) for name in names if (key[0], name) not in known)


def _split_class(node: ast.stmt, lines: list[str], first: int, name: str) -> _Blocks:
    """Return the blocks of a class that begins at line `first`: its head, and those of its body.

    Empty for any other statement, and for a class on one line.
    """
    if not isinstance(node, ast.ClassDef) or _first_line(node.body[0]) == node.lineno:
        return {}
    inside = _first_line(node.body[0])
    head = ("head", name)
    return {
        head: _LineBlock(head, lines[first - 1 : inside - 1]),
        **_split_statements(node.body, lines, inside, f"{name}."),
    }


def _first_line(node: ast.stmt) -> int:
    """Return the first line of a statement, decorators included."""
    decorators = node.decorator_list if isinstance(node, Definition) else []
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _statement_key(node: ast.stmt, owner: str) -> _Key | None:
    """Return the key of a statement; None for one that belongs to a run of other statements."""
    if isinstance(node, Definition):
        return "definition", owner + node.name
    if isinstance(node, ast.ImportFrom):
        return "from", f"{owner}{'.' * node.level}{node.module or ''}"
    if isinstance(node, ast.Import):
        return "import", owner + ast.unparse(node)
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return "name", owner + node.targets[0].id
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return "name", owner + node.target.id
    return None


# --- merging blocks --------------------------------------------------------------------------


def _merge_versions(base: _Blocks, ours: _Blocks, theirs: _Blocks) -> list[str]:
    """Return the lines of the merged blocks of a module or class; raise `_CannotMerge` if they cannot be merged.

    Blocks in all three versions are anchors; between two anchors is a gap. A block that only one side has stays in its gap.
    """
    _check_keys(base, ours, theirs)
    anchors = [key for key in base if key in ours and key in theirs]
    for side in (ours, theirs):
        if [key for key in side if key in anchors] != anchors:
            raise _CannotMerge  # one side has changed the order of blocks
    gaps = zip(*(_group_keys_by_gaps(side, anchors) for side in (base, ours, theirs)), strict=True)
    merged: list[str] = []
    for key, (old, mine, its) in zip([None, *anchors], gaps, strict=True):
        if key is not None:
            merged += _merge_block(base[key], ours[key], theirs[key])
        merged += _merge_gap((base, ours, theirs), old, mine, its)
    return merged


def _check_keys(base: _Blocks, ours: _Blocks, theirs: _Blocks) -> None:
    """Raise `_CannotMerge` if a key may stand for different blocks in the three versions.

    Several definitions of one name are distinguished by their order, so their number must be equal in all versions. A run is
    identified by the block before it. So if one side removes a run and adds another, both may be the same run.
    """
    tallies = [Counter((key[0], key[1].partition("#")[0]) for key in side) for side in (base, ours, theirs)]
    for name in {**tallies[0], **tallies[1], **tallies[2]}:
        numbers = [tally[name] for tally in tallies]
        if name[0] not in ("run", "remark") and max(numbers) > 1 and min(numbers) != max(numbers):
            raise _CannotMerge
    was = {key for key in base if key[0] == "run"}
    for side in (ours, theirs):
        runs = {key for key in side if key[0] == "run"}
        if runs - was and was - runs:
            raise _CannotMerge


def _group_keys_by_gaps(blocks: _Blocks, anchors: Sequence[_Key]) -> list[list[_Key]]:
    """Return the keys before the first anchor, between the first and the second, and so on."""
    gaps: list[list[_Key]] = [[]]
    for key in blocks:
        if key in anchors:
            gaps.append([])
        else:
            gaps[-1].append(key)
    return gaps


def _merge_gap(
    sides: tuple[_Blocks, _Blocks, _Blocks], old: list[_Key], mine: list[_Key], its: list[_Key]
) -> list[str]:
    """Return the merged lines of the blocks of one gap: additions and deletions of both sides are applied.

    `sides` are all blocks of base, ours and theirs; `old`, `mine` and `its` are the keys of those in the gap.
    """
    base, ours, theirs = sides
    have_both_added = not (base.keys() >= set(mine) or base.keys() >= set(its))
    if have_both_added and any(key not in mine and key not in its for key in old):
        raise _CannotMerge  # both have replaced the same block
    blocks = [_merge_one_sided(key, ours, base, theirs) for key in mine]
    blocks += [_merge_one_sided(key, theirs, base, ours) for key in its if key not in ours]
    return [line for lines in blocks for line in lines]


def _merge_one_sided(key: _Key, side: _Blocks, base: _Blocks, other: _Blocks) -> list[str]:
    """Return the lines of a block that the base or the other side lacks; raise `_CannotMerge` if the sides contradict."""
    if key in base and side[key].lines != base[key].lines:
        raise _CannotMerge  # one side has changed it, the other has deleted it
    if key in base:  # the other side has deleted it
        return []
    return _merge_block(_LineBlock(key, []), side[key], other[key]) if key in other else side[key].lines


def _merge_block(base: _LineBlock, ours: _LineBlock, theirs: _LineBlock) -> list[str]:
    """Return the merged lines of a block that all three versions have; raise `_CannotMerge` if there is a conflict."""
    if theirs.lines in (ours.lines, base.lines):
        return ours.lines
    if ours.lines == base.lines:
        return theirs.lines
    if base.parts and ours.parts and theirs.parts:
        return _merge_versions(base.parts, ours.parts, theirs.parts)
    if base.key[0] == "from":
        return _merge_import_names(base, ours, theirs)
    found = merge_lines(base.lines, ours.lines, theirs.lines)
    if isinstance(found, tuple):
        raise _CannotMerge  # it has conflicts
    return found


def _merge_import_names(base: _LineBlock, ours: _LineBlock, theirs: _LineBlock) -> list[str]:
    """Return the lines of a merged `from ... import ...` statement; raise `_CannotMerge` if they cannot be merged.

    It has the names that either side adds, and lacks those that either side removes.
    """
    was, mine, its = (_imported_names(block) for block in (base, ours, theirs))
    kept = [name for name in mine if name in its or name not in was]
    kept += [name for name in its if name not in mine and name not in was]
    if not kept:
        raise _CannotMerge  # nothing is left
    first = next(index for index, line in enumerate(ours.lines) if line.strip())
    line, blanks = ours.lines[first], ours.lines[:first]
    start, newline = line.partition(" import ")[0] + " import ", line[len(line.rstrip("\r\n")) :]
    one = start + ", ".join(kept)
    if len(one) <= _MAX_LINE:
        return [*blanks, one + newline]
    return [*blanks, f"{start}({newline}", *(f"    {name},{newline}" for name in kept), f"){newline}"]


def _imported_names(block: _LineBlock) -> list[str]:
    """Return the names and aliases in a block; raise `_CannotMerge` unless it is a single `from ... import ...` statement."""
    text = "".join(block.lines)
    if "#" in text:
        raise _CannotMerge  # a comment would lose its place
    try:
        body = parse(text).body
    except SyntaxError:
        raise _CannotMerge from None  # it is indented
    if any(not isinstance(node, ast.ImportFrom) for node in body) or len(body) > 1:
        raise _CannotMerge  # another statement shares its line
    return [ast.unparse(alias) for node in body for alias in node.names]  # type: ignore[attr-defined] # it is an import


def _find_conflicts(base: list[str], ours: list[str], theirs: list[str]) -> tuple[Conflict, ...]:
    """Return the innermost definitions that both sides have changed in different ways; empty if a text does not parse."""
    try:
        sides = [_flatten_blocks(_split_text(lines)) for lines in (base, ours, theirs)]
    except _CannotMerge:
        return ()
    was, mine, its = sides
    keys = [key for key in {**was, **mine, **its} if key[0] == "definition"]
    both = [key for key in keys if was.get(key) != mine.get(key) != its.get(key) != was.get(key)]  # no two are equal
    innermost = [key for key in both if not any(other[1].startswith(f"{key[1]}.") for other in both)]
    return tuple(Conflict(key[1], "".join(mine.get(key, ())), "".join(its.get(key, ()))) for key in innermost)


def _flatten_blocks(blocks: _Blocks) -> dict[_Key, list[str]]:
    """Return the lines of all blocks by key, blocks inside classes included."""
    found = {key: block.lines for key, block in blocks.items()}
    for block in blocks.values():
        found |= _flatten_blocks(block.parts)
    return found
