"""Runs project code in the sandbox: `graphbus_trial.py '[roots, modules, calls, test, factory]'`, started by `TrialEnvironment`.

    roots     the folders to import from
    modules   are imported. Reported: the agents that each defines, or what it raised; later code cannot take that back.
    calls     `[module, class, method, kind, topic, shape, values]`, made on new agents if all modules were imported.
              Reported for each value: `ok` and the result, `raises` and the error, or `needs` if the agent cannot be tried alone;
              at last `end`.
    test      the text of a file of tests. Reported: the outcome of each.
    factory   `"package.module:name"`, a function of the project that makes agents for the calls; empty: their classes do.

Modules, calls and test may be empty. Reports go over a socket to `graphbus_watch.py`, each line authenticated with a key.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import opcode
import operator
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from types import CoroutineType, FunctionType
from typing import Any

_MAX_TEXT, _MAX_STEPS = 2000, 40
_MAX_CPU_S = 10
_SKIP_ERRORS = {"Skipped", "SkipTest"}
_BUG_ERRORS = (NameError, AttributeError, TypeError, KeyError, RecursionError, NotImplementedError)
"""Errors that show a bug, unless a `raise` statement of the code raises them."""


def main() -> None:
    """Do the work of the command line, report the results, exceptions of project code included, and exit with 0."""
    send_report, leave, describe = connect(), os._exit, _make_error_describer()
    roots, modules, calls, test, factory = _take_work()
    sys.path[:1] = [*roots, ""]
    is_imported = _import_modules(modules, send_report, describe) if modules else True
    if calls and is_imported:
        _call_all(calls, factory, send_report, describe)
    if test:
        send_report(_run_tests(test))
    leave(0)


def connect() -> Callable[[object], None]:
    """Connect to the watcher, receive the key, and return the function that sends reports. The watcher accepts no other caller.

    Only the returned function holds the key, so that project code cannot find it. In a forked process the function does nothing.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ.pop("GRAPHBUS_VERDICT"))
    key = b""
    while len(key) < 32:
        piece = connection.recv(32 - len(key))
        if not piece:
            raise OSError("the watcher has closed the connection")
        key += piece
    count, pid = 0, os.getpid()
    blake2b, dumps, getpid, send = hashlib.blake2b, json.dumps, os.getpid, connection.sendall

    def send_report(what: object) -> None:
        """Send one report, a JSON value, with its mark: a keyed hash of its number and text."""
        nonlocal count
        if getpid() == pid:
            body = dumps(what).encode()
            mark = blake2b(b"%d " % count + body, key=key).hexdigest().encode()
            send(mark + b" " + body + b"\n")
            count += 1

    return send_report


def _take_work() -> Any:
    """Return the work from the command line, and replace `sys.argv` by that of `graphbus run`, which project code may read."""
    work = json.loads(sys.argv.pop())
    sys.argv[:] = [os.path.join(os.path.dirname(sys.executable), "graphbus"), "run"]
    sys.orig_argv[:] = [sys.executable, *sys.argv]
    sys.modules["__main__"].__dict__["__file__"] = sys.argv[0]
    return work


def _make_error_describer() -> Callable[[BaseException], list[object]]:
    """Return a function that describes an exception by class name, text, and steps in files of the present folder."""
    home = os.path.join(os.getcwd(), "")

    def describe(error: BaseException) -> list[object]:
        """Return `[class name, text, [[path, line], ...]]`; the text and the steps are cut if there are too many."""
        steps = [(path.removeprefix(home), line) for path, line in _trace_steps(error) if path.startswith(home)]
        try:
            text = str(error)
        except BaseException:  # noqa: BLE001 - `__str__` may be code of the project
            text = ""
        return [type(error).__name__, text[:_MAX_TEXT], steps[-_MAX_STEPS:]]

    return describe


def _trace_steps(error: BaseException) -> Iterator[tuple[str, int]]:
    """Yield (absolute path, line) of each step of a traceback; for a SyntaxError, last the place that it reports."""
    step = error.__traceback__
    while step:
        yield os.path.abspath(step.tb_frame.f_code.co_filename), step.tb_lineno
        step = step.tb_next
    if isinstance(error, SyntaxError) and isinstance(error.filename, str) and isinstance(error.lineno, int):
        yield os.path.abspath(error.filename), error.lineno


def _import_modules(
    modules: list[str], send_report: Callable[[object], None], describe: Callable[[BaseException], list[object]]
) -> bool:
    """Import modules, and report the agents that each defines and the errors; True if all could be imported."""
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
        except BaseException as error:  # noqa: BLE001 - a SystemExit is an error of the import, too
            errors[name] = describe(error)
    send_report({"nodes": nodes, "errors": errors})
    return not errors


# --- calls ----------------------------------------------------------------------------------------


class NeedsMoreError(BaseException):
    """An agent needs something that the sandbox does not have, so that it cannot be tried."""


class LoneConnection:
    """The connection of an agent that is alone in its graph: it can publish, and nothing else."""

    def publish(self, topic: str, payload: object = None, *, src: str = "") -> None:
        """Serialise the payload as a bus would, and drop it."""
        json.dumps(payload, default=str)

    def __getattr__(self, name: str) -> Any:
        raise NeedsMoreError(name)


def _call_all(
    calls: list[list[Any]],
    factory: str,
    send_report: Callable[[object], None],
    describe: Callable[[BaseException], list[object]],
) -> None:
    """Make the calls, report each result, and last report `end`. A signal ends the process after 10 s of processor time."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, _MAX_CPU_S)
    for call in calls:
        for value in call[-1]:
            result = _try_call(call, value, factory, describe, with_start=False)
            if result[0] == "raises":  # it may need what `on_start` sets up
                result = _try_call(call, value, factory, describe, with_start=True)
            send_report(result)
    signal.setitimer(signal.ITIMER_PROF, 0)
    send_report(["end"])


def _make_agent(module: str, name: str, factory: str) -> Any:
    """Make an agent as the running graph does: with the factory of the project, else without arguments.

    Raises:
        NeedsMoreError: The factory returns something other than an object of the agent's class.
    """
    kind = getattr(importlib.import_module(module), name)
    if not factory:
        return kind()
    home, _, path = factory.partition(":")
    node = operator.attrgetter(path)(importlib.import_module(home))(kind)
    if not isinstance(node, kind):
        raise NeedsMoreError(factory)
    return node


def _try_call(
    call: list[Any], value: Any, factory: str, describe: Callable[[BaseException], list[object]], *, with_start: bool
) -> list[Any]:
    """Make a call on a new agent, after its `on_start` if `with_start`; return its report: `[kind, detail]`."""
    module, name, method, kind = call[:4]
    try:
        node = _make_agent(module, name, factory)
        node._connection = LoneConnection()
        if with_start:
            node.on_start()
    except BaseException:  # noqa: BLE001 - an agent that cannot be made cannot be tried
        return ["needs", "an agent"]
    try:
        result = _call_method(getattr(node, method), call, value)
    except _BUG_ERRORS as error:
        # a KeyError for a part of the sample value: the code looks it up in data that the sandbox does not have
        is_look_up = isinstance(error, KeyError) and bool(error.args) and repr(error.args[0]) in repr(value)
        return ["needs" if is_look_up or _is_raised_on_purpose(error) else "raises", describe(error)]
    except BaseException as error:  # noqa: BLE001 - the code may refuse the value, or need something that is not here
        return ["needs", type(error).__name__]
    try:
        return ["ok", json.loads(json.dumps(result)) if kind == "call" else None]
    except (TypeError, ValueError):
        return ["needs", "result"]


def _is_raised_on_purpose(error: BaseException) -> bool:
    """True for an exception of a `raise` statement: the code refuses the value on purpose, which is no bug."""
    if isinstance(error, NotImplementedError) or error.__traceback__ is None:
        return False
    step = error.__traceback__
    while step.tb_next:
        step = step.tb_next
    return opcode.opname[step.tb_frame.f_code.co_code[step.tb_lasti]] in ("RAISE_VARARGS", "RERAISE")


def _call_method(function: Any, call: list[Any], value: Any) -> Any:
    """Call a method with arguments, or a handler with an event; await the result of an `async def`."""
    kind, topic, shape = call[3:6]
    if kind == "call":
        result = function(**value)
    else:
        from graphbus_core.bus.signatures import bind_handler
        from graphbus_core.model.messages import Event

        bound = bind_handler(function, shape="topic_payload" if shape == "topic_payload" else None)
        result = bound.call(Event(topic, value))
    if hasattr(result, "__await__"):
        import asyncio

        async def await_result() -> Any:
            return await result

        return asyncio.run(await_result())
    return result


# --- tests of evaluators ----------------------------------------------------------------------------


def _run_tests(text: str) -> object:
    """Execute the text of a test file, then call every function whose name begins with `test`; return the report.

    The report has the outcome of each test, and the class of the error that ended the file, if any.
    """
    namespace: dict[str, object] = {"__name__": "objection", "__file__": "objection.py"}
    outcomes, error = {}, ""
    try:
        exec(compile(text, "objection.py", "exec"), namespace)  # noqa: S102 - this process is in the sandbox
        for name, test in list(namespace.items()):
            if name.startswith("test") and isinstance(test, FunctionType):
                outcomes[name] = _run_test(test)
    except BaseException as reason:  # noqa: BLE001 - a SystemExit is an error of the test file, too
        error = type(reason).__name__
    return {"outcomes": outcomes, "error": error}


def _run_test(test: FunctionType) -> str:
    """Call a test, await it if it is async, and return `passed`, `skipped` or `failed: CLASS`."""
    try:
        result = test()
        if isinstance(result, CoroutineType):
            import asyncio

            asyncio.run(result)
    except BaseException as reason:  # noqa: BLE001
        name = type(reason).__name__
        return "skipped" if name in _SKIP_ERRORS else f"failed: {name}"
    return "passed"


if __name__ == "__main__":
    main()
