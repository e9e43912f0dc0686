"""The only module that prints. Results go to stdout, progress and hints to stderr; only terminals get colour.

With `--json` a command writes one JSON document to stdout with `emit_json` and nothing else; `print_note` still writes to stderr.
Text that comes from a user's files or from an agent passes through `sanitize` before it is styled.
"""

from __future__ import annotations

import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
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
_TEXT_DIRECTION = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

_emitted_documents: list[None] = []  # one item for each document that `emit_json` has written
_shown_status: list[str] = []  # the status on the last line of the terminal, if there is one

QUIET_S = 15.0
"""The seconds without output after which a status is written as a line, where there is no status line; then twice as many."""
_LONGEST_QUIET_S = 120.0


class _Quiet:
    """When the next status is written as a line, in seconds of `time.monotonic`, and the seconds waited for that."""

    wait_s = QUIET_S
    note_at_s = time.monotonic() + QUIET_S


_quiet = _Quiet()


def prepare_streams() -> None:
    """Prepare both streams for a command: reset what an earlier one has written, and escape characters that cannot be encoded.

    Raises:
        UsageError: GBE119, stdout is closed, so that no result could be shown.
    """
    _emitted_documents.clear()
    _shown_status.clear()
    _quiet.wait_s, _quiet.note_at_s = QUIET_S, time.monotonic() + QUIET_S
    if sys.stderr is None:  # closed: notes are discarded
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - stays open until the process ends, as stderr does
    if sys.stdout is None:
        raise UsageError("GBE119", reason="it is closed", advice="Run the command with stdout open. Nothing was done.")
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
    """Return the text with the colour of a role; a stream without colour removes it when the text is written."""
    return click.style(text, **_STYLES[role])


def sanitize(text: str) -> str:
    """Make untrusted text safe to print: control, escape and text-direction characters become visible symbols."""
    if text.isprintable():
        return text
    return "".join(map(_escape_character, text))


def _escape_character(character: str) -> str:
    """Return a visible symbol for a control or text-direction character; other characters, `\\n` and `\\t` unchanged."""
    code = ord(character)
    if character in "\n\t":
        return character
    if code < 0x20:
        return chr(0x2400 + code)
    if 0x7F <= code < 0xA0 or character in _TEXT_DIRECTION:
        return f"<U+{code:04X}>"
    return character


def sanitize_line(text: str) -> str:
    """Return untrusted text on one line, safe to print."""
    return sanitize(" ".join(text.split()))


def pluralize(number: int, noun: str, several: str = "") -> str:
    """Return a number with its noun: `1 file`, `2 files`, `3 deliveries`."""
    return f"{number} {noun if number == 1 else several or f'{noun}s'}"


def format_duration(seconds: float) -> str:
    """Return a duration in whole seconds: `12 s`, `3 min 20 s`, `2 h 5 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class Verbatim(str):
    """A line that is never wrapped: code, a diff, JSON, a command to copy."""

    __slots__ = ()


def print_line(text: str = "", *, end: str = "\n") -> None:
    """Write a result to stdout. For a terminal it is wrapped between words, unless it is `Verbatim` or `end` is empty."""
    _begin_output()
    click.echo(_wrap_for_terminal(text, end, sys.stdout) + end, nl=False, color=is_coloured(sys.stdout))


def print_lines(lines: Iterable[str]) -> None:
    """Write several results, each on a line of its own."""
    for line in lines:
        print_line(line)


def print_result(document: object, lines: Iterable[str], *, as_json: bool) -> None:
    """Write the result of a command: the document as JSON, or the lines as text."""
    if as_json:
        emit_json(document)
    else:
        print_lines(lines)


def chosen_format(options: dict[str, Any]) -> str:
    """Remove `form` and `as_json` from the options and return the format to use; `--json` is short for `--format json`.

    Raises:
        UsageError: GBE110 if `--json` is combined with another format.
    """
    form, as_json = options.pop("form"), options.pop("as_json")
    if as_json and form not in (None, "json"):
        command = click.get_current_context().command_path
        message = f"--json and --format {form} contradict each other: pass only one of them."
        raise UsageError("GBE110", message=message, command=command, purpose="list the formats")
    return "json" if as_json else form or "text"


def print_note(text: str = "", *, end: str = "\n") -> None:
    """Write progress, hints and everything else that is not the result to stderr. If stderr cannot be written, discard it."""
    _begin_output()
    try:
        click.echo(_wrap_for_terminal(text, end, sys.stderr) + end, nl=False, err=True, color=is_coloured(sys.stderr))
    except OSError:
        _redirect_to_null(sys.stderr)


def show_status(text: str) -> None:
    """Show the current activity on the last line of a terminal, until the next output or an empty status replaces it.

    Where there is no such line, as in a pipe, the status is written as a line on stderr after some time without output.
    """
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        if text and time.monotonic() >= _quiet.note_at_s:
            wait_s = min(2 * _quiet.wait_s, _LONGEST_QUIET_S)
            print_note(sanitize(text))
            _quiet.wait_s, _quiet.note_at_s = wait_s, time.monotonic() + wait_s
        return
    if _shown_status == [text]:
        return
    has_colour, room = is_coloured(sys.stderr), _terminal_columns() - 1
    if _shown_status:
        erase = "\r\x1b[2K" if has_colour else f"\r{' ' * room}\r"
        click.echo(erase, nl=False, err=True, color=True)
        _shown_status.clear()
    if text:
        _shown_status.append(text)
        click.echo(style(_fit_status(sanitize(text), room), "dim"), nl=False, err=True, color=has_colour)


def _fit_status(text: str, room: int) -> str:
    """Return as many of the parts of a status, which ` · ` separates, as fit; the first one is cut if it does not fit."""
    while len(text) > room and " · " in text:
        text = text.rpartition(" · ")[0]
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _begin_output() -> None:
    """Remove the status line, and begin anew to wait for the time at which a status is written as a line."""
    show_status("")
    _quiet.wait_s, _quiet.note_at_s = QUIET_S, time.monotonic() + QUIET_S


def emit_json(document: object) -> None:
    """Write the one JSON document of a command to stdout. It may contain structs, mappings and sequences."""
    show_status("")
    _emitted_documents.append(None)
    click.echo(_encode_json(document))


@contextmanager
def reserve_stdout() -> Iterator[None]:
    """Within the block, send to stderr what code of the project and its child processes print: stdout is for a document."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _encode_json(document: object) -> str:
    """Return the document as indented JSON."""
    import msgspec

    try:
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    except (
        UnicodeEncodeError
    ):  # events may hold half of a surrogate pair, which UTF-8 cannot encode; JSON can escape it
        import json

        return json.dumps(msgspec.to_builtins(document), indent=2)


def has_emitted_json() -> bool:
    """True if the command has written its JSON document."""
    return bool(_emitted_documents)


def print_error(refusal: GraphBusError) -> None:
    """Print an error to stderr."""
    for line in error_lines(refusal):
        print_note(line)


def error_lines(refusal: GraphBusError) -> Iterator[str]:
    """Yield an error as lines of text: `place: error: sentence [code]`, then the hint."""
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
    print_note(f"{style('error:', 'bad')} This is a bug in GraphBus, not in your project.")
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

    If even the longest words do not fit, the last columns are written below each row.

    Args:
        headers: The names of the columns.
        rows: The cells.
        right: Columns that are aligned to the right.
        optional: Columns that are left out, in this order, where the terminal is too narrow for all.
        write: `print_line`, or `print_note` for stderr.
    """
    room = _output_width(write)
    columns = [[style(name, "strong") if name else "", *cells] for name, *cells in zip(headers, *rows, strict=True)]
    for name in optional:
        if _table_width(columns, _cell_width) > room:
            columns = [column for column in columns if click.unstyle(column[0]) != name]
    below: list[list[str]] = []  # columns that do not fit: each cell is written on lines of its own, below its row
    while len(columns) > 1 and _table_width(columns, _longest_word) > room:
        below.insert(0, columns.pop())
    widths = _column_widths(columns, room)
    are_right = [click.unstyle(column[0]) in right for column in columns]
    for number, row in enumerate(zip(*columns, strict=True)):
        for parts in zip_longest(*map(_wrap, row, widths), fillvalue=""):
            write(Verbatim((" " * _GAP).join(map(_pad_cell, parts, widths, are_right)).rstrip()))
        for column in below if number else ():
            for line in _wrap(f"    {column[number]}", room, 4):
                write(Verbatim(line.rstrip()))


def _table_width(columns: Sequence[Sequence[str]], measure: Callable[[str], int]) -> int:
    """Return the width of the table if each column is as wide as its largest cell by this measure."""
    return sum(max(map(measure, cells)) + _GAP for cells in columns) - _GAP


def _column_widths(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return the width of each column. While the table is too wide, the widest columns shrink, down to their longest word."""
    natural = [max(map(_cell_width, cells)) for cells in columns]
    least = [max(map(_longest_word, cells)) for cells in columns]
    room -= _GAP * (len(columns) - 1)
    widths = natural.copy()
    while sum(widths) > room and widths != least:
        widest = max((index for index in range(len(widths)) if widths[index] > least[index]), key=widths.__getitem__)
        widths[widest] -= 1
    for index, cells in enumerate(columns):  # wrapped lines may be shorter than the column: others get the rest
        widths[index] = max(_cell_width(part) for cell in cells for part in _wrap(cell, widths[index]))
    for index in range(len(widths)):
        widths[index] += max(0, min(room - sum(widths), natural[index] - widths[index]))
    return widths


def _pad_cell(cell: str, width: int, is_right: bool) -> str:
    padding = " " * (width - _cell_width(cell))
    return padding + cell if is_right else cell + padding


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
    console = Console(color_system=colours, force_terminal=coloured, width=_output_width(print_line), highlight=False)
    with console.capture() as capture:
        console.print(root)
    print_line(Verbatim("\n".join(line.rstrip() for line in capture.get().splitlines())))


def _output_width(write: Callable[[str], None]) -> int:
    """Return the width of the terminal that the function writes to, or 1000 if its stream is not a terminal."""
    stream = sys.stderr if write is print_note else sys.stdout
    return _terminal_columns() if stream.isatty() else _WIDTH_WITHOUT_TERMINAL


def _terminal_columns() -> int:
    """Return the width of the terminal. `shutil` is imported late, because it loads three compression modules."""
    from shutil import get_terminal_size

    return get_terminal_size().columns


def flush() -> None:
    """Flush both streams, so that a closed pipe is noticed here and not at exit."""
    sys.stdout.flush()
    sys.stderr.flush()


def output_failure(error: Exception) -> UsageError | None:
    """Return a UsageError, and discard what is buffered for stdout, if the error comes from writing output; otherwise None."""
    from traceback import walk_tb

    codes = {frame.f_code for frame, _ in walk_tb(error.__traceback__)}
    if not isinstance(error, OSError) or codes.isdisjoint({click.echo.__code__, flush.__code__}):
        return None
    abandon_stdout()
    advice = "Redirect the output to another file. Files of the project may have been changed already."
    return UsageError("GBE119", reason=(error.strerror or str(error)).lower(), advice=advice)


def abandon_stdout() -> None:
    """Discard what is buffered for stdout and all further output, because nobody reads it any more."""
    _redirect_to_null(sys.stdout)


def _redirect_to_null(stream: IO[str]) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


# --- long lines, wrapped to the width of the terminal ------------------------------------------

_LEAST_ROOM = 20
"""If a line has fewer columns than this, text is not wrapped."""
_MARK = re.compile(r"(\[[A-Z]+\]|[✓✗?·~=|-]|::) ")
_TOKENS = re.compile(r" +|[^ ]+")


def terminal_width() -> int:
    """Return the width of the terminal behind stdout; 0 if it is not a terminal and lines are not wrapped."""
    return _terminal_columns() if sys.stdout.isatty() else 0


def wrap_lines(prefix: str, text: str, indent: int, outer: int = 0) -> Iterator[str]:
    """Yield a prefix, which may be styled, and the text after it, wrapped to the terminal; further lines are indented.

    Args:
        outer: How many columns the caller writes before each line.
    """
    room = terminal_width() - indent - outer
    wrapped = [part for line in text.split("\n") for part in (_wrap(line, room) if room >= _LEAST_ROOM else [line])]
    yield f"{prefix}{wrapped[0]}"
    yield from (f"{' ' * indent}{line}".rstrip() for line in wrapped[1:])


def labelled_lines(label: str, value: str, width: int) -> Iterator[str]:
    """Yield a label and its value; further lines of the value are indented to its start. The label is padded to `width`."""
    return wrap_lines(f"  {style(f'{label}:'.ljust(width), 'dim')} ", value, width + 3)


def command_lines(command: str, indent: int = 0) -> Iterator[str]:
    """Yield a shell command; on a narrow terminal it is split by backslashes at line ends, so that it can still be copied."""
    words = re.findall(r"(?:'[^']*'|[^ '])+", command)
    room, lines = terminal_width() - indent - 2, [""]
    for word in words:
        if lines[-1] and 0 < room < len(lines[-1]) + 1 + len(word):
            lines.append(" ")
        lines[-1] += f" {word}" if lines[-1] else word
    yield Verbatim(" \\\n".join(f"{' ' * indent}{line}" for line in lines))


def _wrap_for_terminal(text: str, end: str, stream: IO[str]) -> str:
    """Wrap each line if the stream is a terminal; further parts are indented below the text after a mark such as `✓`."""
    if isinstance(text, Verbatim) or not end or not stream.isatty():
        return text
    return "\n".join(
        part for line in text.split("\n") for part in _wrap(line, _terminal_columns(), _hanging_indent(line))
    )


def _hanging_indent(line: str) -> int:
    """Return the column of the text after the indentation and a mark such as `✓` or `[AGENT]`, by which to indent its rest."""
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
    """Return how many columns of a terminal the text takes; wide characters take two, combining ones none."""
    shown = click.unstyle(text)
    if shown.isascii():
        return len(shown)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in shown)


def _longest_word(text: str) -> int:
    return max(map(_cell_width, text.split(" ")))
