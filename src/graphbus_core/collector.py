"""The garbage collector while a process of ours starts: what is imported stays for good, so nothing of it is looked at.

Otherwise a tenth of the work of `graphbus check` and of a graph that becomes ready is a search for garbage among modules, once
more when the process ends. Only the beginning of a process may use this: what is garbage at `resume` would stay for good as well.
"""

from __future__ import annotations

import gc

_is_resting = False


def pause() -> None:
    """Let it rest until `resume`, unless whoever started the process has switched it off anyway."""
    global _is_resting  # noqa: PLW0603 - there is one collector in a process
    if gc.isenabled():
        gc.disable()
        _is_resting = True


def resume() -> None:
    """Let it work again if it rests, from here on and on what is made from here on."""
    global _is_resting  # noqa: PLW0603
    if _is_resting:
        _is_resting = False
        gc.freeze()
        gc.enable()
