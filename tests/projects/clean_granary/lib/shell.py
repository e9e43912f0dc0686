"""Programs of the office's machine; the scripts that print and archive use them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def capture(*command: str) -> str:
    """Run a program and give what it prints."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def write(path: str, text: str) -> None:
    """Write a file."""
    Path(path).write_text(text, encoding="utf-8")


def system() -> object:
    """Give the module that knows the operating system."""
    return os


class Shell:
    """A folder in which programs run."""

    def __init__(self, folder: str = ".") -> None:
        self.folder = folder

    def run(self, *command: str) -> int:
        """Run a program there."""
        return subprocess.run(command, cwd=self.folder, check=False).returncode

    @classmethod
    def at_home(cls) -> Shell:
        """Give a shell in the home folder."""
        return cls(os.path.expanduser("~"))

    @staticmethod
    def remove(path: str) -> None:
        """Remove a file."""
        os.remove(path)

    @property
    def variables(self) -> dict[str, str]:
        """What the environment holds."""
        return dict(os.environ)


SHELL = Shell()
