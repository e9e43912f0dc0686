"""What click refuses, said as GraphBus says it: the word that is wrong, the nearest right one, and where it would be right."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from graphbus_core.errors import UsageError, did_you_mean

_REJECTED = re.compile(r"'(.*?)' is not (?:one of|a valid) ")


def as_usage_error(refusal: click.ClickException, root: click.Group, arguments: Sequence[str]) -> UsageError:
    """Make our refusal of click's.

    Args:
        refusal: What click says.
        root: The command `graphbus`.
        arguments: What was typed after it.
    """
    context = getattr(refusal, "ctx", None) or _reached(root, arguments)[-1]
    message = _sentence(refusal, context, arguments)
    if message[-1:] not in ".?!":
        message += "."
    return UsageError("GBE110", message=message, command=context.command_path)


def _sentence(refusal: click.ClickException, context: click.Context, arguments: Sequence[str]) -> str:
    if isinstance(refusal, click.NoSuchOption):
        return _no_option(refusal.option_name, context, arguments)
    if isinstance(refusal, click.NoSuchCommand):
        return _no_command(refusal.command_name, context)
    if isinstance(refusal, click.MissingParameter) and isinstance(refusal.param, click.Parameter):
        return _missing(refusal.param)
    if isinstance(refusal, click.BadParameter) and refusal.param and (rejected := _REJECTED.match(refusal.message)):
        kind = refusal.param.type
        if isinstance(kind, click.Choice):
            return refusal.format_message() + did_you_mean(rejected[1], map(str, kind.choices))
        if isinstance(kind, click.IntRange | click.FloatRange):
            number = "whole number" if isinstance(kind, click.IntRange) else "number"
            return f"{_called(refusal.param)} must be a {number}, not {rejected[1]!r}."
    return refusal.format_message()


def _missing(parameter: click.Parameter) -> str:
    """In one line, as every refusal; the words to choose from are said once."""
    choices = [str(choice) for choice in parameter.type.choices] if isinstance(parameter.type, click.Choice) else []
    if isinstance(parameter, click.Option):
        name = " or ".join(sorted(parameter.opts, key=len, reverse=True))
        return f"{name} is missing{f': {_either(choices)}' if choices else ''}."
    return f"An argument is missing: {_either(choices) or _called(parameter)}."


def _either(words: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _called(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option):
        return parameter.opts[0]
    return parameter.make_metavar(click.Context(click.Command(None)))


def _no_command(name: str, context: click.Context) -> str:
    """Say that a group has no such command."""
    group = context.command
    known = group.list_commands(context) if isinstance(group, click.Group) else ()
    of = "" if context.parent is None else f"{context.command_path} has no command {name!r}."
    return f"{of or f'There is no command {name!r}.'}{did_you_mean(name, known)}"


# --- options --------------------------------------------------------------------------------


def _no_option(name: str, context: click.Context, arguments: Sequence[str]) -> str:
    """An option that is right somewhere else is distinguished from a misspelt one."""
    here = f"There is no option {name}" if context.parent is None else f"{context.command_path} has no option {name}"
    root = context.find_root()
    if context.parent and name in _options(root):
        return f"{here}: it is an option of graphbus itself and stands before the command."
    reached = _reached(root.command, arguments)
    below = next((each for each in reached if _is_below(each, context) and name in _options(each)), None)
    if below:
        return f"{here}: it is an option of {below.command_path} and stands after the command."
    return f"{here}.{did_you_mean(name, _options(context))}"


def _options(context: click.Context) -> list[str]:
    return [
        name
        for parameter in context.command.get_params(context)
        if isinstance(parameter, click.Option) and not parameter.hidden
        for name in (*parameter.opts, *parameter.secondary_opts)
    ]


def _is_below(one: click.Context, other: click.Context) -> bool:
    return one.command_path.startswith(f"{other.command_path} ")


def _reached(root: click.Command, arguments: Sequence[str]) -> list[click.Context]:
    """The commands that the words name, the outermost first."""
    context = click.Context(root, info_name="graphbus", resilient_parsing=True, **root.context_settings)
    found = [context]
    for word in arguments:
        group = context.command
        if isinstance(group, click.Group) and word in group.list_commands(context):
            command = group.get_command(context, word)
            if command:
                context = click.Context(command, info_name=word, parent=context, resilient_parsing=True)
                found.append(context)
    return found
