"""Converts errors of click to errors of GraphBus, with a suggestion for a misspelled word."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

import click

from graphbus_core.errors import GraphBusError, UsageError, did_you_mean

_REJECTED = re.compile(r"'(.*?)' is not one of ")


def with_better_cause(refusal: GraphBusError) -> GraphBusError:
    """Return GBE191 instead of GBE501 (no artifacts) if its path is a source file, or a folder that contains source files.

    Any other error is returned unchanged.
    """
    place = refusal.where.path if refusal.code == "GBE501" and refusal.where else ""
    try:
        names = os.listdir(place) if os.path.isdir(place) else [place]
    except OSError:
        names = []
    return UsageError("GBE191", path=place) if any(name.endswith(".py") for name in names) else refusal


def as_usage_error(refusal: click.ClickException, root: click.Group, words: Iterable[str]) -> UsageError:
    """Convert an error of click. If it does not name its command, that is found from the words of the command line."""
    context = getattr(refusal, "ctx", None) or _context_of_command(click.Context(root, info_name="graphbus"), words)
    message = " ".join(_describe_refusal(refusal, context).split())
    purpose = "see its options" if isinstance(context.command, click.Group) else "see its arguments and options"
    if isinstance(refusal, click.NoSuchCommand):
        purpose = "list the commands"
    return UsageError("GBE110", message=message, command=context.command_path, purpose=purpose)


def _context_of_command(context: click.Context, words: Iterable[str]) -> click.Context:
    """Return the context of the command or subcommand that the words name."""
    for word in words:
        command = context.command.get_command(context, word) if isinstance(context.command, click.Group) else None
        context = click.Context(command, info_name=word, parent=context) if command else context
    return context


def _describe_refusal(refusal: click.ClickException, context: click.Context) -> str:
    """Return the message of the error as a sentence, with a suggestion for an unknown option, command or value."""
    if isinstance(refusal, click.NoSuchOption):
        return _describe_unknown_option(refusal.option_name, context)
    if isinstance(refusal, click.NoSuchCommand):
        known = context.command.list_commands(context) if isinstance(context.command, click.Group) else ()
        start = f"{context.command_path} has" if context.parent else "There is"
        return f"{start} no command {refusal.command_name!r}.{did_you_mean(refusal.command_name, known)}"
    message = refusal.format_message()
    kind = refusal.param.type if isinstance(refusal, click.BadParameter) and refusal.param else None
    if isinstance(kind, click.Choice) and (rejected := _REJECTED.match(refusal.message)):
        has_json = rejected[1] == "json" and "--json" in _option_names(context)
        message += " Use '--json'." if has_json else did_you_mean(rejected[1], map(str, kind.choices))
    return message if message.endswith((".", "?", "!")) else f"{message}."


def _describe_unknown_option(name: str, context: click.Context) -> str:
    """Return a sentence on an unknown option: that it belongs before the command, or a similar option."""
    here = f"{context.command_path} has no option {name}" if context.parent else f"There is no option {name}"
    if context.parent and name in _option_names(context.find_root()):
        return f"{here}: it is an option of graphbus itself: write it before the command."
    options = _option_names(context)
    has_json = name == "--format" and "--json" in options
    return f"{here}. Use '--json'." if has_json else f"{here}.{did_you_mean(name, options)}"


def _option_names(context: click.Context) -> list[str]:
    """Return all spellings of the options of a command, without hidden options."""
    return [
        name
        for parameter in context.command.get_params(context)
        if isinstance(parameter, click.Option) and not parameter.hidden
        for name in (*parameter.opts, *parameter.secondary_opts)
    ]
