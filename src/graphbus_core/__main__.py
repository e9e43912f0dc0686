"""The entry point of the command `graphbus`; `python -m graphbus_core` is the same command.

Ctrl-C ends it without a traceback, also while the command is still being imported and after it has done its work.
"""

import sys

from graphbus_core import collector


def main() -> int:
    """Run the command line of this process, and return its exit status; 130 after Ctrl-C."""
    try:
        collector.pause()
        from graphbus_core.cli import main as run

        status = run()
        _restore_default_interrupt()
        collector.resume()
    except KeyboardInterrupt:
        return 130
    return status


def _restore_default_interrupt() -> None:
    """Let Ctrl-C end the process at once, without a traceback; for the time after the command, when the process only ends."""
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
