"""Negotiates over a fresh shop with a real model, and prints what came of it: `make live`, docs/live-models.md.

    python -m scripts.live                                              # the smallest model of the kit
    python -m scripts.live --gguf model.gguf --server llama-server
    python -m scripts.live --base-url https://models.example.org/v1 --model name --key-env MODELS_KEY

Exit status: 0 all is well, whatever the model answers; 1 something happened that no answer may cause; 2 there is no model to ask.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scripts.live.figures import find_facts, find_failures, make_table
from scripts.live.recorder import Recorder
from scripts.live.server import MODELS, NoModelError, Slots, install_model, serve
from scripts.live.session import Wishes, run_session

OK, FAILED, NO_MODEL = 0, 1, 2


def main(given: Sequence[str] | None = None) -> int:
    """Run the session that the arguments ask for, by default those of the process; return the exit status."""
    arguments = _parse_arguments(given)
    wishes = Wishes(
        rounds=arguments.rounds,
        max_output_tokens=arguments.max_output_tokens,
        limit_s=arguments.limit,
        voters=arguments.voters,
        settings=tuple(arguments.setting),
    )
    try:
        with (
            _find_model(arguments) as (base_url, name),
            Recorder(base_url, os.environ.get(arguments.key_env, "")) as recorder,
            tempfile.TemporaryDirectory(prefix="graphbus-live-") as folder,
        ):
            session = run_session(Path(folder), recorder, name, wishes)
    except NoModelError as reason:
        print(f"live: no model was asked: {reason}", flush=True)
        return OK if arguments.if_possible else NO_MODEL
    failures = find_failures(session)
    _print_table([("model", name), ("asked for", _describe(wishes)), *make_table(session), *find_facts(session)])
    print(*(f"live: FAILED: {failure}." for failure in failures), sep="\n")
    if failures and not sys.stdout.isatty():
        print(session.build.output[-4000:])
    return FAILED if failures else OK


def _parse_arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make live", description="Negotiate over a fresh shop with a real model.")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--kit", choices=sorted(MODELS), default="smollm2", help="a model of the kit beside the checkout"
    )
    where.add_argument("--gguf", type=Path, metavar="FILE", help="weights, for --server")
    where.add_argument("--base-url", metavar="URL", help="a server that speaks the protocol of OpenAI")
    parser.add_argument("--server", default="llama-server", metavar="PROGRAM", help="the server for --gguf")
    parser.add_argument("--model", default="", metavar="NAME", help="the name of the model at --base-url")
    parser.add_argument("--key-env", default="", metavar="NAME", help="the variable with the key for --base-url")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--max-output-tokens", type=int, default=250)
    parser.add_argument("--limit", type=int, default=600, metavar="SECONDS", help="the time of the session")
    parser.add_argument("--voters", default="", metavar="MODEL", help="who votes, as in `graphbus build --voters`")
    parser.add_argument("--setting", action="append", default=[], metavar="LINE", help="a line for [tool.graphbus.llm]")
    parser.add_argument("--context", type=int, default=8192, help="tokens of context of a server that is started")
    parser.add_argument("--threads", type=int, default=1, help="threads of a server that is started")
    parser.add_argument("--if-possible", action="store_true", help="exit status 0 also if there is no model to ask")
    return parser.parse_args(given)


@contextmanager
def _find_model(arguments: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield address and name of the model to ask; a server that is started for it ends with the block.

    Raises:
        NoModelError: There is none.
    """
    if arguments.base_url:
        yield arguments.base_url, arguments.model or "default"
        return
    size = Slots(context=arguments.context, threads=arguments.threads)
    if arguments.gguf:
        with serve(arguments.gguf.resolve(), arguments.server, arguments.gguf.stem, size) as url:
            yield url, arguments.gguf.stem
        return
    with serve(install_model(arguments.kit), "", arguments.kit, size) as url:
        yield url, arguments.kit


def _describe(wishes: Wishes) -> str:
    rounds = "1 round" if wishes.rounds == 1 else f"{wishes.rounds} rounds"
    voters = [f"votes by {wishes.voters}"] if wishes.voters else []
    return ", ".join([rounds, f"at most {wishes.max_output_tokens} tokens an answer", *voters, *wishes.settings])


def _print_table(rows: list[tuple[str, str]]) -> None:
    """Print rows as a table of Markdown."""
    cells = [("what", "figure"), *((name, text.replace("|", "\\|")) for name, text in rows)]
    left, right = (max(len(row[place]) for row in cells) for place in (0, 1))
    lines = [f"| {name:<{left}} | {text:<{right}} |" for name, text in cells]
    print(lines[0], f"|{'-' * (left + 2)}|{'-' * (right + 2)}|", *lines[1:], sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
