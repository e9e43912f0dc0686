"""What has to be done in the evening."""

from __future__ import annotations

import lib.shell
from lib.shell import SHELL, Shell, capture


def archive(folder: str) -> str:
    """Pack a folder."""
    return capture("tar", "-cf", f"{folder}.tar", folder)


def lights_out() -> int:
    """Turn the machine off."""
    return lib.shell.SHELL.run("shutdown", "now")


def kg(text: str) -> float:
    """Read a weight as people write it."""
    return float(text.removesuffix("kg").strip())


class Evening(Shell):
    """A shell for the evening."""

    def close(self) -> int:
        """Turn the lights out."""
        return self.run("true")


EVENING = Evening()
OTHER = SHELL
