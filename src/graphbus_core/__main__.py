"""Where the process of `graphbus` begins and ends; `python -m graphbus_core` is the same command.

Ctrl-C ends it without a traceback, also while the command is still being imported and after it has done its work.
"""

import sys

from graphbus_core import collector


def main() -> int:
    """Run the command that was typed, and give its exit status."""
    try:
        collector.pause()
        from graphbus_core.cli import main as run

        status = run()
        _die_of_interrupts()
        collector.resume()
    except KeyboardInterrupt:
        return 130
    return status


def _die_of_interrupts() -> None:
    """What is left is to close down: who presses Ctrl-C now wants it to end at once, and no traceback of it."""
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
