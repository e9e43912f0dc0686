"""The only module that prints. Results go to stdout, progress and hints to stderr; only terminals get colour.

With `--json` a command writes one JSON document to stdout with `emit_json` and nothing else; `print_note` still writes to stderr.
Text that comes from a user's files or from an agent passes through `sanitize` before it is styled.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import IO, Any, Literal

import click

from graphbus_core.errors import GraphBusError, UsageError

Role = Literal["good", "bad", "warn", "gone", "name", "accent", "strong", "dim"]

_STYLES: dict[Role, dict[str, Any]] = {
    "good": {"fg": "green"},
    "bad": {"fg": "red", "bold": True},
    "warn": {"fg": "yellow"},
    "gone": {"fg": "red"},
    "name": {"fg": "cyan"},
    "accent": {"fg": "magenta"},
    "strong": {"bold": True},
    "dim": {"dim": True},
}
_WIDTH_WITHOUT_TERMINAL = 1000
_GAP = 2
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

_documents: list[None] = []
_statuses: list[str] = []


def prepare_streams() -> None:
    """Prepare both streams for a command: reset what an earlier one has written, and escape characters that cannot be encoded.

    Raises:
        UsageError: GBE119, stdout is closed, so that no result could be shown.
    """
    _documents.clear()
    _statuses.clear()
    if sys.stderr is None:  # closed: notes are discarded
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it is open to the end, as every stderr
    if sys.stdout is None:
        raise UsageError("GBE119", reason="it is closed")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def is_coloured(stream: IO[str]) -> bool:
    """True if the stream gets colour: a terminal that is not dumb. NO_COLOR forbids colour, FORCE_COLOR demands it."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def style(text: str, role: Role) -> str:
    """Style a piece of text by its role; whether the colour is shown is decided where it is written."""
    return click.style(text, **_STYLES[role])


def sanitize(text: str) -> str:
    """Make untrusted text safe to print: control, escape and text-direction characters become visible symbols."""
    if text.isprintable():
        return text
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    code = ord(character)
    if character in "\n\t":
        return character
    if code < 0x20:
        return chr(0x2400 + code)
    if 0x7F <= code < 0xA0 or character in _BIDI:
        return f"<U+{code:04X}>"
    return character


def sanitize_line(text: str) -> str:
    """Return untrusted text on one line, safe to print."""
    return sanitize(" ".join(text.split()))


def pluralize(number: int, noun: str, several: str = "") -> str:
    """Return a number with its noun: `1 file`, `2 files`, `3 deliveries`."""
    return f"{number} {noun if number == 1 else several or f'{noun}s'}"


class Verbatim(str):
    """A line that is written as it is, however wide the terminal is: code, a diff, JSON, a command to copy."""

    __slots__ = ()


def print_line(text: str = "", *, end: str = "\n") -> None:
    """Write a result to stdout. A terminal gets it wrapped between words, unless it is `Verbatim` or has no line end."""
    show_status("")
    click.echo(_fitted(text, end, sys.stdout) + end, nl=False, color=is_coloured(sys.stdout))


def print_lines(lines: Iterable[str]) -> None:
    """Write several results, each on a line of its own."""
    for line in lines:
        print_line(line)


def print_result(document: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Write the result of a command: as its one JSON document, or as lines of text."""
    if as_json:
        emit_json(document)
    else:
        print_lines(lines)


def chosen_format(wished: dict[str, Any]) -> str:
    """Remove `form` and `as_json` from the options and return the format to use; `--json` is short for `--format json`.

    Raises:
        UsageError: GBE110, they contradict each other.
    """
    form, as_json = wished.pop("form"), wished.pop("as_json")
    if as_json and form not in (None, "json"):
        command = click.get_current_context().command_path
        raise UsageError("GBE110", message=f"--json and --format {form} contradict each other.", command=command)
    return "json" if as_json else form or "text"


def print_note(text: str = "", *, end: str = "\n") -> None:
    """Write progress, hints and everything else that is not the result to stderr. If stderr cannot be written, discard it."""
    show_status("")
    try:
        click.echo(_fitted(text, end, sys.stderr) + end, nl=False, err=True, color=is_coloured(sys.stderr))
    except OSError:
        _abandon(sys.stderr)


def show_status(text: str) -> None:
    """Show the current activity on the last line of a terminal, until the next output or an empty status replaces it."""
    if _statuses == [text] or not sys.stderr.isatty() or not is_coloured(sys.stderr):
        return
    if _statuses:
        click.echo("\r\x1b[2K", nl=False, err=True, color=True)
        _statuses.clear()
    if text:
        _statuses.append(text)
        width = _columns() - 1
        click.echo(style(sanitize(text)[:width], "dim"), nl=False, err=True, color=True)


def emit_json(document: object) -> None:
    """Write the one JSON document of a command to stdout; structs, mappings and sequences are taken as they are."""
    show_status("")
    _documents.append(None)
    click.echo(_as_json(document))


def _as_json(document: object) -> str:
    import msgspec

    try:
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    except UnicodeEncodeError:  # half of a surrogate pair, which events may hold: JSON can escape it
        import json

        return json.dumps(msgspec.to_builtins(document), indent=2)


def has_emitted_json() -> bool:
    """True when the command has written its document."""
    return bool(_documents)


def print_error(refusal: GraphBusError) -> None:
    """Print an error to stderr."""
    for line in error_lines(refusal):
        print_note(line)


def error_lines(refusal: GraphBusError) -> Iterator[str]:
    """Return an error as lines of text: `place: error: sentence [code]`, then the hint."""
    place = f"{sanitize(str(refusal.where))}: " if refusal.where else ""
    code = style(f"[{refusal.code}]", "dim")
    yield f"{style(place, 'strong')}{style('error:', 'bad')} {sanitize(refusal.sentence)} {code}"
    if refusal.hint:
        yield f"  {style('hint:', 'name')} {sanitize(refusal.hint)}"


def error_as_json(refusal: GraphBusError) -> dict[str, object]:
    """Return an error as it appears in JSON output."""
    where = refusal.where
    place = {"path": where.path, "line": where.line, "column": where.column} if where else None
    return {"code": refusal.code, "message": refusal.sentence, "hint": refusal.hint, "where": place}


def print_bug_report() -> None:
    """Print the traceback of the current exception, and ask the user to report it."""
    import traceback

    print_note(traceback.format_exc(), end="")
    print_note(f"{style('error:', 'bad')} This is a bug of GraphBus, not of your project.")
    print_note(f"  {style('hint:', 'name')} Please report it with the text above and the command that you typed.")


def print_diff(text: str, write: Callable[[str], None] = print_line) -> None:
    """Write a unified diff, coloured by line."""
    for line in diff_lines(text):
        write(line)


def diff_lines(text: str) -> Iterator[str]:
    """Yield the lines of a unified diff, coloured."""
    for line in text.splitlines():
        role = _diff_role(line)
        yield Verbatim(style(sanitize(line), role) if role else sanitize(line))


def _diff_role(line: str) -> Role | None:
    if line.startswith(("+++", "---")):
        return "strong"
    roles: dict[str, Role] = {"+": "good", "-": "gone", "@": "name"}
    return roles.get(line[:1])


def print_table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    optional: Sequence[str] = (),
    write: Callable[[str], None] = print_line,
) -> None:
    """Write aligned columns; cells may be styled. On a narrow terminal cells are wrapped between words.

    Args:
        headers: The names of the columns.
        rows: The cells.
        right: Columns that hold numbers.
        optional: Columns that are left out, in this order, where the terminal is too narrow for all.
        write: `print_line`, or `print_note` for stderr.
    """
    room = _width(write)
    columns = [[style(name, "strong") if name else "", *cells] for name, *cells in zip(headers, *rows, strict=True)]
    for name in optional:
        if _table_width(columns, _cell_width) > room:
            columns = [column for column in columns if click.unstyle(column[0]) != name]
    below: list[list[str]] = []  # columns whose words have no room: each cell on lines of its own, below its row
    while len(columns) > 1 and _table_width(columns, _longest_word) > room:
        below.insert(0, columns.pop())
    widths = _column_widths(columns, room)
    are_right = [click.unstyle(column[0]) in right for column in columns]
    for number, row in enumerate(zip(*columns, strict=True)):
        for parts in zip_longest(*map(_wrap, row, widths), fillvalue=""):
            write(Verbatim((" " * _GAP).join(map(_padded, parts, widths, are_right)).rstrip()))
        for column in below if number else ():
            for line in _wrap(f"    {column[number]}", room, 4):
                write(Verbatim(line.rstrip()))


def _table_width(columns: Sequence[Sequence[str]], measure: Callable[[str], int]) -> int:
    return sum(max(map(measure, cells)) + _GAP for cells in columns) - _GAP


def _column_widths(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return the width of each column: what its cells need, less where the widest columns must be wrapped to fit."""
    wanted = [max(map(_cell_width, cells)) for cells in columns]
    least = [max(map(_longest_word, cells)) for cells in columns]
    room -= _GAP * (len(columns) - 1)
    widths = wanted.copy()
    while sum(widths) > room and widths != least:
        widest = max((index for index in range(len(widths)) if widths[index] > least[index]), key=widths.__getitem__)
        widths[widest] -= 1
    for index, cells in enumerate(columns):  # what wrapping leaves free goes to the other columns
        widths[index] = max(_cell_width(part) for cell in cells for part in _wrap(cell, widths[index]))
    for index in range(len(widths)):
        widths[index] += max(0, min(room - sum(widths), wanted[index] - widths[index]))
    return widths


def _padded(cell: str, width: int, is_right: bool) -> str:
    blanks = " " * (width - _cell_width(cell))
    return blanks + cell if is_right else cell + blanks


def print_tree(label: str, branches: Mapping[str, Any]) -> None:
    """Write a tree to stdout: a mapping of label -> mapping of the same kind, empty for a leaf; labels may be styled."""
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    def grow(parent: Tree, below: Mapping[str, Any]) -> None:
        for name, rest in below.items():
            grow(parent.add(Text.from_ansi(name)), rest)

    root = Tree(Text.from_ansi(label), guide_style="dim")
    grow(root, branches)
    coloured = is_coloured(sys.stdout)
    colours: Literal["standard"] | None = "standard" if coloured else None
    console = Console(color_system=colours, force_terminal=coloured, width=_width(print_line), highlight=False)
    with console.capture() as capture:
        console.print(root)
    print_line(Verbatim("\n".join(line.rstrip() for line in capture.get().splitlines())))


def _width(write: Callable[[str], None]) -> int:
    stream = sys.stderr if write is print_note else sys.stdout
    return _columns() if stream.isatty() else _WIDTH_WITHOUT_TERMINAL


def _columns() -> int:
    """Return the width of the terminal. `shutil` is imported late, because it loads three compression modules."""
    from shutil import get_terminal_size

    return get_terminal_size().columns


def flush() -> None:
    """Flush both streams, so that a closed pipe is noticed here and not at exit."""
    sys.stdout.flush()
    sys.stderr.flush()


def output_failure(error: Exception) -> UsageError | None:
    """Return a UsageError if the error comes from writing to stdout, otherwise None; the rest of the output is then discarded."""
    from traceback import walk_tb

    codes = {frame.f_code for frame, _ in walk_tb(error.__traceback__)}
    if not isinstance(error, OSError) or codes.isdisjoint({click.echo.__code__, flush.__code__}):
        return None
    abandon_stdout()
    return UsageError("GBE119", reason=(error.strerror or str(error)).lower())


def abandon_stdout() -> None:
    """Discard what is still buffered for stdout, because its reader has gone."""
    _abandon(sys.stdout)


def _abandon(stream: IO[str]) -> None:
    void = os.open(os.devnull, os.O_WRONLY)
    os.dup2(void, stream.fileno())
    os.close(void)


# --- long lines, wrapped to the width of the terminal ------------------------------------------

_LEAST = 20
"""In fewer columns than this, text is not wrapped."""
_MARK = re.compile(r"(\[[A-Z]+\]|[✓✗?·~=|-]|::) ")
_TOKENS = re.compile(r" +|[^ ]+")


def terminal_width() -> int:
    """Return the width of the terminal behind stdout; 0 if it is not a terminal and lines are not wrapped."""
    return _columns() if sys.stdout.isatty() else 0


def wrap_lines(prefix: str, text: str, indent: int, outer: int = 0) -> Iterator[str]:
    """Yield a prefix, which may be styled, and a text after it, wrapped to the terminal; all lines but the first are indented.

    Args:
        outer: The caller writes this many columns before each of the lines.
    """
    room = terminal_width() - indent - outer
    wrapped = [part for line in text.split("\n") for part in (_wrap(line, room) if room >= _LEAST else [line])]
    yield f"{prefix}{wrapped[0]}"
    yield from (f"{' ' * indent}{line}".rstrip() for line in wrapped[1:])


def labelled_lines(label: str, value: str, width: int) -> Iterator[str]:
    """Yield a label and its value, wrapped below its beginning. Labels with the same `width` align their values."""
    return wrap_lines(f"  {style(f'{label}:'.ljust(width), 'dim')} ", value, width + 3)


def command_lines(command: str, indent: int = 0) -> Iterator[str]:
    """Yield a shell command; for a narrow terminal it continues on further lines with a backslash, so that it can be copied."""
    words = re.findall(r"(?:'[^']*'|[^ '])+", command)
    room, lines = terminal_width() - indent - 2, [""]
    for word in words:
        if lines[-1] and 0 < room < len(lines[-1]) + 1 + len(word):
            lines.append(" ")
        lines[-1] += f" {word}" if lines[-1] else word
    yield Verbatim(" \\\n".join(f"{' ' * indent}{line}" for line in lines))


def _fitted(text: str, end: str, stream: IO[str]) -> str:
    """Wrap each line for a terminal; further parts are indented below the text after a mark such as `✓` or `[AGENT]`."""
    if isinstance(text, Verbatim) or not end or not stream.isatty():
        return text
    return "\n".join(part for line in text.split("\n") for part in _wrap(line, _columns(), _hanging(line)))


def _hanging(line: str) -> int:
    shown = click.unstyle(line)
    text = shown.lstrip(" ")
    mark = _MARK.match(text)
    return len(shown) - len(text) + (mark.end() if mark else 2)


def _wrap(line: str, room: int, indent: int = 0) -> list[str]:
    """Break a line between words, so that each part fits; a word that is wider than the room stays whole."""
    if _cell_width(line) <= room:
        return [line]
    lines, current = [""], 0
    for token in _TOKENS.findall(line):
        width = _cell_width(token)
        if not token.isspace() and current + width > room and lines[-1].strip():
            lines[-1] = lines[-1].rstrip()
            lines.append(" " * indent)
            current = indent
        elif token.isspace() and len(lines) > 1 and not lines[-1].strip():
            continue
        lines[-1] += token
        current += width
    return lines


def _cell_width(text: str) -> int:
    shown = click.unstyle(text)
    if shown.isascii():
        return len(shown)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in shown)


def _longest_word(text: str) -> int:
    return max(map(_cell_width, text.split(" ")))
