"""Where the cursor is: the command that is typed, the option or argument that comes next, and what was given before it.

Nothing is parsed for good and no value is judged: half a line is never right.
"""

from __future__ import annotations

from collections.abc import Sequence

import click


class Cursor:
    """What has been read so far.

    Attributes:
        context: Of the command, with those of its groups above it.
        given: Values by the name of their parameter, in the order in which they were typed; a flag has none.
        pending: The option that still wants values.
        is_option_possible: False after `--`.
        is_lost: A word was typed for which there is no place; nothing can be said about what follows.
        folders: What `-C` has said.
        prefix: What stands before the value in the word at the cursor: `--format=`.
    """

    def __init__(self, context: click.Context) -> None:
        self.context = context
        self.given: dict[str, list[str]] = {}
        self.pending: click.Option | None = None
        self.is_option_possible = True
        self.is_lost = False
        self.folders: list[str] = []
        self.prefix = ""

    @property
    def command(self) -> click.Command:
        """The command whose words are typed."""
        return self.context.command

    @property
    def may_be_option(self) -> bool:
        """True where an option may stand: not after `--`, and not in the place of a value that must be given."""
        return self.is_option_possible and (self.pending is None or _is_optional(self.pending)) and not self.prefix

    @property
    def parameter(self) -> click.Parameter | None:
        """The option or argument that the word at the cursor belongs to, if it is no option itself."""
        return self.pending or self._argument()

    @property
    def index(self) -> int:
        """Which value of that parameter it is, for an option with several."""
        return len(self.given[_name(self.pending)]) % self.pending.nargs if self.pending else 0

    @property
    def has_words(self) -> bool:
        """An argument was given: what follows is no command any more."""
        arguments = {parameter.name for parameter in self.command.params if isinstance(parameter, click.Argument)}
        return not arguments.isdisjoint(self.given)

    def _argument(self) -> click.Argument | None:
        for parameter in self.command.get_params(self.context):
            if isinstance(parameter, click.Argument):
                count = len(self.given.get(_name(parameter), ()))
                if parameter.nargs == -1 or count < parameter.nargs:
                    return parameter
        return None

    def take(self, word: str) -> None:
        """Read one whole word."""
        if self.pending and not (_is_optional(self.pending) and word.startswith("-")):
            self._give(self.pending, word)
        elif word == "--" and self.is_option_possible:
            self.is_option_possible = False
        elif self.is_option_possible and len(word) > 1 and word.startswith("-"):
            self._take_option(word)
        elif not self._enter(word):
            argument = self._argument()
            if argument:
                self.given.setdefault(_name(argument), []).append(word)
            else:
                self.is_lost = True

    def _take_option(self, word: str) -> None:
        self.pending = None
        name, equals, value = word.partition("=")
        option = self.find_option(name)
        if option is None and not word.startswith("--"):
            option, equals, value = self.find_option(word[:2]), word[2:], word[2:]
        if option is None:
            return
        self.given.setdefault(_name(option), [])
        self.pending = None if option.is_flag or option.count else option
        if self.pending and equals:
            self._give(option, value)

    def _give(self, option: click.Option, value: str) -> None:
        values = self.given[_name(option)]
        values.append(value)
        if "-C" in option.opts:
            self.folders.append(value)
        self.pending = option if len(values) % option.nargs else None

    def _enter(self, word: str) -> bool:
        """Go on with a command of this group."""
        command = self.command
        if not isinstance(command, click.Group):
            return False
        below = command.get_command(self.context, word)
        if below is None:
            return False
        self.context = click.Context(below, info_name=word, parent=self.context, resilient_parsing=True)
        self.given = {}
        return True

    def find_option(self, name: str) -> click.Option | None:
        """Give the option of this command that is spelled so."""
        for parameter in self.command.get_params(self.context):
            if isinstance(parameter, click.Option) and name in (*parameter.opts, *parameter.secondary_opts):
                return parameter
        return None


def _name(parameter: click.Parameter | None) -> str:
    return (parameter.name if parameter else "") or ""


def _is_optional(option: click.Option) -> bool:
    """Its value may be left out."""
    return bool(option._flag_needs_value)


def read(group: click.Group, words: Sequence[str], incomplete: str) -> tuple[Cursor, str]:
    """Read the words before the cursor, and give what is to be completed."""
    cursor = Cursor(click.Context(group, info_name="graphbus", resilient_parsing=True, **group.context_settings))
    for word in words:
        cursor.take(word)
    name, equals, value = incomplete.partition("=")
    if equals and not cursor.pending and cursor.is_option_possible and name.startswith("--"):
        option = cursor.find_option(name)
        if option and not option.is_flag:
            cursor.given.setdefault(_name(option), [])
            cursor.pending, cursor.prefix, incomplete = option, f"{name}=", value
    return cursor, incomplete
