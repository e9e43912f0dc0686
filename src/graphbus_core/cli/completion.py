"""`graphbus completion`: the script with which a shell completes commands, options and words of the project."""

from __future__ import annotations

from importlib.resources import files

import click

from graphbus_core.cli import console

SHELLS = ("bash", "zsh", "fish")


@click.command("completion", short_help="Print the script that completes words in your shell.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(*, shell: str) -> None:
    """Print a script for SHELL: bash, zsh or fish. Nothing is installed or changed; load it where the shell begins.

    It completes commands, options, their values and files, and words of the project: agents, methods, topics,
    sessions, dead letters. They are read from the artifacts of the last build; your code is not run.

    \b
    bash, in ~/.bashrc:
      eval "$(graphbus completion bash)"
    zsh, in ~/.zshrc, after compinit:
      eval "$(graphbus completion zsh)"
    fish, once:
      graphbus completion fish > ~/.config/fish/completions/graphbus.fish

    Exit status: 0 done; 2 another shell.

    \b
    Examples:
      graphbus completion bash
      graphbus completion zsh > ~/.zfunc/_graphbus
    """
    script = files("graphbus_core.cli.completing").joinpath(f"graphbus.{shell}")
    console.out(script.read_text(encoding="utf-8"), end="")
