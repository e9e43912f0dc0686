"""What pytest stands on, to be compared later: functions, modules, hooks, finders, traces. Names are the same in every run."""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

_WATCHED = {
    *("builtins", "contextlib", "functools", "importlib", "inspect", "json", "os", "posix", "pluggy", "pytest", "sys"),
    *("threading", "traceback", "unittest", "_pytest"),
}
_KINDS = (FunctionType, BuiltinFunctionType, classmethod, staticmethod, property, type)
_INSTALLED = tuple(
    os.path.join(os.path.realpath(path), "")
    for name, path in sysconfig.get_paths().items()
    if name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_Seen = dict[str, tuple[object, object]]


class Seen:
    """The state at the start, and all that was found to differ from it since."""

    def __init__(self) -> None:
        self.changed: set[str] = set()
        self._code = _code()
        self._modules = dict(sys.modules)
        self._interpreter = _interpreter()
        self._hooks: _Seen = {}
        self._tests: dict[int, tuple[object, object, object]] = {}
        self._manager: Any = None

    def watch(self, manager: Any) -> None:
        """Remember the hooks, as soon as there is something that has them."""
        self._manager, self._hooks = manager, _hooks(manager)

    def compare(self) -> None:
        """Look at everything."""
        now = _code()
        self._differs(self._code, now)
        self.changed.update(name for name in now if name not in self._code and name.rpartition(".")[0] in self._code)
        for name, module in self._modules.items():
            if sys.modules.get(name) is not module:
                self.changed.add(f"the module {name}")
        self.glance()

    def glance(self) -> None:
        """Look at what is small and can come and go: hooks, finders and traces."""
        for before, now in ((self._hooks, _hooks(self._manager)), (self._interpreter, _interpreter())):
            self._differs(before, now)
            self.changed.update(name for name in now if name not in before)

    def remember(self, thing: Any, function: object) -> None:
        """Remember what is called for a test or a fixture."""
        if id(thing) not in self._tests:
            self._tests[id(thing)] = (thing, function, _code_of(function))

    def check(self, thing: Any, function: object, what: str) -> None:
        """Compare what is about to be called with what was remembered, once."""
        known = self._tests.pop(id(thing), None)
        if known and (known[1] != function or known[2] is not _code_of(function)):
            self.changed.add(what)

    def _differs(self, before: _Seen, now: _Seen) -> None:
        for name, (value, code) in before.items():
            there = now.get(name)
            if there is None or there[0] is not value or there[1] is not code:
                self.changed.add(name)


def _code_of(function: object) -> object:
    return getattr(getattr(function, "__func__", function), "__code__", None)


def _code() -> _Seen:
    """Give every function and class of pytest and of what it stands on, with its code."""
    found: _Seen = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _WATCHED and isinstance(module, ModuleType):
            for attribute, value in list(vars(module).items()):
                if isinstance(value, _KINDS) and not attribute.endswith("hook"):
                    found[f"{name}.{attribute}"] = (value, getattr(value, "__code__", None))
                if isinstance(value, type) and value.__module__ == name:
                    for inner, method in list(vars(value).items()):
                        if isinstance(method, _KINDS):
                            found[f"{name}.{attribute}.{inner}"] = (method, getattr(method, "__code__", None))
    return found


def _hooks(manager: Any) -> _Seen:
    """Give what is called for each hook; those of the same name are counted. A conftest.py that is read later is none."""
    found: _Seen = {}
    for hook, caller in list(vars(manager.hook).items()):
        for call in getattr(caller, "get_hookimpls", list)():
            if not _is_conftest(call.plugin, call.function):
                _put(found, f"the hook {hook} of {named(call.plugin)}", call.function, _code_of(call.function))
        _put(found, f"the calls of {hook}", getattr(caller, "_hookexec", None), None)
    _put(found, "the calls of hooks", manager._inner_hookexec, _code_of(manager._inner_hookexec))
    return found


def _put(found: _Seen, name: str, value: object, code: object) -> None:
    number = 1
    while f"{name} ({number})" in found:
        number += 1
    found[f"{name} ({number})"] = (value, code)


def _is_conftest(plugin: object, function: object) -> bool:
    file = getattr(plugin, "__file__", None) if isinstance(plugin, ModuleType) else None
    code = getattr(function, "__code__", None)
    return bool(file and os.path.basename(file) == "conftest.py" and code and code.co_filename == file)


def named(thing: object) -> str:
    """Give the name of a module, class or function, or that of its class."""
    if isinstance(thing, ModuleType):
        return thing.__name__
    owner = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{getattr(owner, '__module__', '')}.{getattr(owner, '__qualname__', '')}"


def fixtures_of(manager: object) -> Iterator[Any]:
    """Give the fixtures that are known, whatever the version of pytest keeps them in."""
    kept = [value for name, value in getattr(manager, "__dict__", {}).items() if name.startswith("_arg2")]
    while kept:
        value = kept.pop()
        if hasattr(value, "func"):
            yield value
        elif hasattr(value, "values"):
            kept.extend(value.values())
        elif isinstance(value, list | tuple):
            kept.extend(value)


def _interpreter() -> _Seen:
    """Give finders of modules that no installed package has brought, and what traces the code."""
    found: _Seen = {}
    for where, finders in (("sys.meta_path", sys.meta_path), ("sys.path_hooks", sys.path_hooks)):
        for finder in finders:
            if not _is_installed(finder):
                _put(found, f"{where}: {named(finder)}", finder, None)
    traces: tuple[tuple[str, Callable[[], object] | None], ...] = (
        ("sys.settrace", sys.gettrace),
        ("sys.setprofile", sys.getprofile),
        ("threading.settrace", getattr(threading, "gettrace", None)),
        ("threading.setprofile", getattr(threading, "getprofile", None)),
    )
    for name, ask in traces:
        trace = ask() if ask else None
        if trace is not None:
            _put(found, f"{name}: {named(trace)}", trace, _code_of(trace))
    return found


def _is_installed(finder: object) -> bool:
    """True for code of the standard library and of installed packages: it may come with what the project imports."""
    method = getattr(finder, "find_spec", finder)
    code = _code_of(method)
    if code is None:
        return True
    file = str(getattr(code, "co_filename", ""))
    return file.startswith("<frozen ") or os.path.realpath(file).startswith(_INSTALLED)
