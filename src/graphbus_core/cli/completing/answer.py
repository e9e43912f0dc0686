"""The answer to a shell: one line for each word that fits, `kind TAB word TAB help`. Nothing else is ever written.

The variable `_GRAPHBUS_COMPLETE` names the shell that asks. zsh and fish give the words up to the cursor as arguments, the
last one unfinished. bash gives its line up to the cursor, the piece that it would replace and the name of the command: it
takes words apart at `:` and `=`, and wants the piece after the last of them.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress

import click

from graphbus_core.cli import COMMANDS, graphbus
from graphbus_core.cli.completing.cursor import Cursor, read
from graphbus_core.cli.completing.words import Asked, Word, words_for
from graphbus_core.isolation import attempt

_END = "\0"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def answer(shell: str, arguments: Sequence[str]) -> int:
    """Write the words that fit; whatever goes wrong means that none does."""
    found, _ = attempt(lambda: list(_lines(shell, arguments)))
    text = "".join(f"{line}\n" for line in found or ())
    with suppress(OSError):
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))
        sys.stdout.flush()
    return 0


def _lines(shell: str, arguments: Sequence[str]) -> Iterator[str]:
    words, kept = _typed_in_bash(*arguments) if shell == "bash" else (list(arguments), 0)
    for word in complete(words[:-1], words[-1] if words else ""):
        yield "\t".join((word.kind, _CONTROL.sub(" ", word.text[kept:]), _CONTROL.sub(" ", word.help)))


def _typed_in_bash(line: str, piece: str, command: str) -> tuple[list[str], int]:
    """The words after the name of the command, and how much of the last one bash leaves as it is."""
    words = _split(line)
    words = words[words.index(command) + 1 :] if command in words else words[1:]
    last = words[-1] if words else ""
    return words, len(last) - len(piece) if piece and last.endswith(piece) else _after_break(last)


def _after_break(word: str) -> int:
    """Where bash goes on in a word that ends with one of its breaks."""
    return len(word) if word.endswith((":", "=")) else 0


def _split(line: str) -> list[str]:
    """As a shell would, up to the cursor; a quote that is still open ends there."""
    for closing in ("", "'"):
        with suppress(ValueError):
            return _closed(line + _END + closing)
    return _closed(line + _END + '"')


def _closed(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    *words, last = lexer
    return [*words, last.removesuffix(_END)]


def complete(words: Sequence[str], incomplete: str) -> list[Word]:
    """Give the words that may stand at the cursor, in the order of the help."""
    here = os.getcwd()
    try:
        cursor, typed = read(graphbus, words, incomplete)
        _go_to(cursor)
        return [] if cursor.is_lost else list(dict.fromkeys(_fitting(cursor, typed)))
    finally:
        os.chdir(here)


def _go_to(cursor: Cursor) -> None:
    """`-C` says where the project is."""
    for folder in cursor.folders:
        os.chdir(folder)


def _fitting(cursor: Cursor, typed: str) -> Iterator[Word]:
    if cursor.may_be_option and typed.startswith("-"):
        yield from _options(cursor, typed)
        return
    if not cursor.pending and isinstance(cursor.command, click.Group) and not cursor.has_words:
        yield from _commands(cursor.command, cursor.context, typed)
    parameter = cursor.parameter
    if parameter:
        for word in words_for(parameter, cursor.index, Asked(typed, cursor.given)):
            yield word if word.kind != "plain" else word._replace(text=cursor.prefix + word.text)


def _commands(group: click.Group, context: click.Context, typed: str) -> Iterator[Word]:
    """The table of `graphbus` is read, and none of its commands imported."""
    for name in group.list_commands(context):
        if name.startswith(typed):
            if group is graphbus:
                yield Word(name, COMMANDS[name].summary)
            elif (command := group.get_command(context, name)) and not command.hidden:
                yield Word(name, command.get_short_help_str(100))


def _options(cursor: Cursor, typed: str) -> Iterator[Word]:
    """Those that may still be given; the short spelling only where nothing more is typed than `-`."""
    for parameter in cursor.command.get_params(cursor.context):
        if not isinstance(parameter, click.Option) or parameter.hidden:
            continue
        if parameter.name in cursor.given and not parameter.multiple:
            continue
        for name in sorted((*parameter.opts, *parameter.secondary_opts), key=len, reverse=True):
            if name.startswith(typed):
                yield Word(name, _told(parameter))


def _told(option: click.Option) -> str:
    return (option.help or "").partition("\n")[0]
