"""Run as a child process: negotiate over the zoo's project with a model that is a function.

    python -m tests.e2e.session_driver ROOT ANSWERS [--resume]

After so many answers the model gives no further one, so that the process stays at that point until it is killed; 0: it answers
all. Prints how often the model was asked.
"""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path
from threading import Event

from graphbus_core.errors import GraphBusError
from graphbus_core.llm.client import ModelPrompt
from tests.fakes.model_sessions import GoodModel, negotiate


def main(root: str, answers: str, *options: str) -> int:
    """Negotiate, and give the exit status."""
    asked = count(1)

    def answer_or_wait(_prompt: ModelPrompt) -> None:
        if next(asked) > int(answers) > 0:
            Event().wait()

    model = GoodModel(answer_or_wait)
    try:
        negotiate(Path(root), model, is_resumed="--resume" in options)
    except GraphBusError as error:
        sys.stderr.write(f"{error}\n")
        return error.status
    sys.stdout.write(f"{len(model.asked)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
