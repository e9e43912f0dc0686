"""What is done with project code in the jail: `graphbus_trial.py '[roots, modules, calls, test]'`.

    modules   are imported; said: which agents each has, or what it raised. What comes later cannot take that back.
    calls     `[module, class, method, kind, topic, shape, values]` are made on fresh agents, if all modules were imported;
              said for each value: `ok` and the result, `raises` and the error, or `needs`; at last `end`
    test      is the text of a file of tests; said: what became of each

Each of the three may be empty. What is said goes over a socket to `graphbus_watch.py`, each line under a key.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import opcode
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from types import CoroutineType, FunctionType
from typing import Any

_LONGEST_TEXT, _MOST_STEPS = 2000, 40
_LONGEST_S = 10
_SKIPS = {"Skipped", "SkipTest"}
_WRONG = (NameError, AttributeError, TypeError, KeyError, RecursionError, NotImplementedError)


def main() -> None:
    """Do the work of the command line; whatever project code raises is an answer."""
    say, leave, tell = connect(), os._exit, _teller()
    roots, modules, calls, test = _take_work()
    sys.path[:1] = [*roots, ""]
    is_imported = _import(modules, say, tell) if modules else True
    if calls and is_imported:
        _call_all(calls, say, tell)
    if test:
        say(_run_tests(test))
    leave(0)


def connect() -> Callable[[object], None]:
    """Call the watcher, take the key, and give the function that says things; afterwards nobody can call again.

    A process that was forked since stays silent.
    """
    speaker = socket.socket(socket.AF_UNIX)
    speaker.connect(os.environ.pop("GRAPHBUS_VERDICT"))
    key = b""
    while len(key) < 32:
        piece = speaker.recv(32 - len(key))
        if not piece:
            raise OSError("nobody listens")
        key += piece
    number, owner = 0, os.getpid()
    blake2b, dumps, getpid, send = hashlib.blake2b, json.dumps, os.getpid, speaker.sendall

    def say(what: object) -> None:
        nonlocal number
        if getpid() == owner:
            body = dumps(what).encode()
            mark = blake2b(b"%d " % number + body, key=key).hexdigest().encode()
            send(mark + b" " + body + b"\n")
            number += 1

    return say


def _take_work() -> Any:
    """Take what is to be done from the command line, and leave one as a running graph has it."""
    work = json.loads(sys.argv.pop())
    sys.argv[:] = [os.path.join(os.path.dirname(sys.executable), "graphbus"), "run"]
    sys.orig_argv[:] = [sys.executable, *sys.argv]
    sys.modules["__main__"].__dict__["__file__"] = sys.argv[0]
    return work


def _teller() -> Callable[[BaseException], list[object]]:
    """Give the function that tells of an exception, with paths relative to the folder that is current now."""
    home = os.path.join(os.getcwd(), "")

    def tell(error: BaseException) -> list[object]:
        steps = [(path.removeprefix(home), line) for path, line in _steps(error) if path.startswith(home)]
        try:
            text = str(error)
        except BaseException:  # noqa: BLE001 - its text is code of the project, too
            text = ""
        return [type(error).__name__, text[:_LONGEST_TEXT], steps[-_MOST_STEPS:]]

    return tell


def _steps(error: BaseException) -> Iterator[tuple[str, int]]:
    step = error.__traceback__
    while step:
        yield os.path.abspath(step.tb_frame.f_code.co_filename), step.tb_lineno
        step = step.tb_next
    if isinstance(error, SyntaxError) and isinstance(error.filename, str) and isinstance(error.lineno, int):
        yield os.path.abspath(error.filename), error.lineno


def _import(modules: list[str], say: Callable[[object], None], tell: Callable[[BaseException], list[object]]) -> bool:
    from graphbus_core.node import GraphBusNode

    nodes, errors = {}, {}
    for name in modules:
        try:
            module = importlib.import_module(name)
            nodes[name] = sorted(
                value.__name__
                for value in vars(module).values()
                if isinstance(value, type) and issubclass(value, GraphBusNode) and value.__module__ == name
            )
        except BaseException as error:  # noqa: BLE001 - SystemExit, too, is what becomes of an import
            errors[name] = tell(error)
    say({"nodes": nodes, "errors": errors})
    return not errors


# --- calls ----------------------------------------------------------------------------------------


class NeedsMoreError(BaseException):
    """The agent asks for something that is not here."""


class Alone:
    """What ties a node to a graph in which it is alone."""

    def publish(self, topic: str, payload: object = None, *, src: str = "") -> None:
        """Let the payload be written, as a bus would."""
        json.dumps(payload, default=str)

    def __getattr__(self, name: str) -> Any:
        raise NeedsMoreError(name)


def _call_all(
    calls: list[list[Any]], say: Callable[[object], None], tell: Callable[[BaseException], list[object]]
) -> None:
    """Make the calls; the process is ended after 10 s of processor time."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, _LONGEST_S)
    for each in calls:
        for value in each[-1]:
            answer = _try(each, value, tell, starts=False)
            say(_try(each, value, tell, starts=True) if answer[0] == "raises" else answer)
    signal.setitimer(signal.ITIMER_PROF, 0)
    say(["end"])


def _try(each: list[Any], value: Any, tell: Callable[[BaseException], list[object]], *, starts: bool) -> list[Any]:
    module, name, method, kind = each[:4]
    try:
        node = getattr(importlib.import_module(module), name)()
        node._connection = Alone()
        if starts:
            node.on_start()
    except BaseException as error:  # noqa: BLE001 - an agent that cannot be made cannot be tried
        return ["needs", type(error).__name__]
    try:
        result = _call(getattr(node, method), each, value)
    except _WRONG as error:
        is_said = isinstance(error, KeyError) and bool(error.args) and repr(error.args[0]) in repr(value)
        return ["needs" if is_said or _is_meant(error) else "raises", tell(error)]
    except BaseException as error:  # noqa: BLE001 - the value may be refused, or something may be missing here
        return ["needs", type(error).__name__]
    try:
        return ["ok", json.loads(json.dumps(result)) if kind == "call" else None]
    except (TypeError, ValueError):
        return ["needs", "result"]


def _is_meant(error: BaseException) -> bool:
    """Tell whether a `raise` of the code itself said so: it refuses the value, and may have reason to."""
    if isinstance(error, NotImplementedError) or error.__traceback__ is None:
        return False
    step = error.__traceback__
    while step.tb_next:
        step = step.tb_next
    return opcode.opname[step.tb_frame.f_code.co_code[step.tb_lasti]] in ("RAISE_VARARGS", "RERAISE")


def _call(function: Any, each: list[Any], value: Any) -> Any:
    kind, topic, shape = each[3:6]
    if kind == "call":
        result = function(**value)
    else:
        from graphbus_core.bus.signatures import bind_handler
        from graphbus_core.model.messages import Event

        result = bind_handler(function, shape="topic_payload" if shape == "topic_payload" else None).call(
            Event(topic, value)
        )
    if hasattr(result, "__await__"):
        import asyncio

        async def wait() -> Any:
            return await result

        return asyncio.run(wait())
    return result


# --- tests that evaluators have written ---------------------------------------------------------------


def _run_tests(text: str) -> object:
    """Load the text as a module, then call every function in it whose name begins with `test`."""
    space: dict[str, object] = {"__name__": "objection", "__file__": "objection.py"}
    outcomes, error = {}, ""
    try:
        exec(compile(text, "objection.py", "exec"), space)  # noqa: S102 - this is the jail
        for name, test in list(space.items()):
            if name.startswith("test") and isinstance(test, FunctionType):
                outcomes[name] = _outcome(test)
    except BaseException as reason:  # noqa: BLE001 - SystemExit, too, is what becomes of it
        error = type(reason).__name__
    return {"outcomes": outcomes, "error": error}


def _outcome(test: FunctionType) -> str:
    try:
        result = test()
        if isinstance(result, CoroutineType):
            import asyncio

            asyncio.run(result)
    except BaseException as reason:  # noqa: BLE001
        name = type(reason).__name__
        return "skipped" if name in _SKIPS else f"failed: {name}"
    return "passed"


if __name__ == "__main__":
    main()
