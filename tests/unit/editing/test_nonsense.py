"""G2: what compiles and cannot be meant. The names are compared with what ruff finds; the collection of edits tries the rest."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from graphbus_core.editing.rungs.capability.sources import AnalyzedFile
from graphbus_core.editing.rungs.effects.facts import Fact, decide
from graphbus_core.editing.rungs.nonsense import check_bodies, check_effect, check_marks, check_names, is_idle

RUFF = Path(sys.executable).with_name("ruff")
LIBRARY = Path(json.__file__).parents[1]
FOLDERS = (
    "json",
    "asyncio",
    "email",
    "http",
    "logging",
    "unittest",
    "importlib",
    "concurrent",
    "collections",
    "ctypes",
)


class NoProject:
    """A project without modules: every star import leads out of it."""

    def module(self, name: str) -> None:
        return None

    def fields(self, name: str) -> list[Any]:
        return []


def analyzed(text: str) -> AnalyzedFile:
    project: Any = NoProject()
    return AnalyzedFile("a.py", "a", ast.parse(text), project)


def undefined(text: str, old: str = "") -> str:
    """Give the first name of a new text that nothing defines; empty if there is none."""
    refusal = check_names(analyzed(old), analyzed(text))
    return refusal.message.split("'")[1] if refusal else ""


def names_that_ruff_finds(path: Path) -> set[str]:
    command = [str(RUFF), "check", "--isolated", "--no-cache", "--select", "F821", "--output-format", "json", str(path)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    return {each["message"].split("`")[1] for each in found if each["code"] == "F821"}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("def f(a):\n    return b", "b"),
        ("def f(a):\n    return [b for b in a] + b", "b"),
        ("class A:\n    x = 1\n    def f(self):\n        return x", "x"),
        ("class A:\n    x = [1]\n    y = [x for _ in x]", "x"),
        ("def f(a: Missing) -> int:\n    return a", "Missing"),
        ("def f(a: 'list[Missing]') -> int:\n    return a", "Missing"),
        ("import os.path as p\nos", "os"),
        ("try:\n    pass\nexcept Missing:\n    pass", "Missing"),
        ("f = lambda a: a + b", "b"),
        ("match 1:\n    case Missing():\n        pass", "Missing"),
        ("def f():\n    def g():\n        x = 1\n    return x", "x"),
        ("@missing\ndef f():\n    pass", "missing"),
        ("f'{missing:>{width}}'", "missing"),
        ("x = 1\nx += missing", "missing"),
        ("x: int\nprint(x)", "x"),
        ("def f():\n    del x\n    return x", "x"),
        ("class A:\n    x: int\n    y = x", "x"),
        ("def f(exec):\n    return exec(missing)", "missing"),
        ("try:\n    pass\nexcept OSError as e:\n    pass\nprint(e)", "e"),
        ("def f():\n    try:\n        pass\n    except OSError as e:\n        pass\n    return lambda: e", "e"),
        ("for _ in ():\n    print(e)\n    try:\n        pass\n    except OSError as e:\n        raise", "e"),
        ("try:\n    pass\nexcept OSError as e:\n    pass\nexcept TypeError:\n    print(e)", "e"),
        (
            "def f():\n    try:\n        pass\n    except OSError as e:\n        pass\n    finally:\n        print(e)",
            "e",
        ),
    ],
)
def test_a_name_that_nothing_defines_is_found(text: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(text)

    assert undefined(text) == name
    assert name in names_that_ruff_finds(tmp_path / "a.py")


@pytest.mark.parametrize(
    "text",
    [
        "from os.path import *\njoin('a')",
        "exec('x = 1')\nprint(x)",
        "globals()['x'] = 1\nprint(x)",
        "try:\n    unicode\nexcept NameError:\n    unicode = str",
        "try:\n    x = unicode\nexcept NameError:\n    x = str",
        "if 1:\n    import json\nelse:\n    json = None\njson",
        "x = 1\ndel x\nx",
        "def f():\n    global x\n    x = 1\ndef g():\n    return x",
        "def f():\n    x = 1\n    def g():\n        nonlocal x\n        x = 2\n    return g",
        "class A:\n    x = [1]\n    y = [a for a in x]",
        "class A:\n    def f(self):\n        return __class__, __name__, __file__\n    z = __qualname__, __module__",
        "def f(a: 'Literal[\"missing\"]') -> 'A':\n    return a\nfrom typing import Literal\nclass A: pass",
        "if (n := 10) > 5:\n    print(n)",
        "[last := n for n in (1, 2)]\nlast",
        "match [1, 2]:\n    case [a, *rest] | {'a': a, **rest}:\n        print(a, rest)",
        "try:\n    pass\nexcept* OSError as group:\n    print(group)",
        "with open('a') as (a, [b]):\n    print(a, b)",
        "for a, (b, *c) in ():\n    print(a, b, c)",
        "import a.b.c\na",
        "from __future__ import annotations\ndef f(a: B): ...\nclass B: ...",
        "__all__ = ['a']\na = 1",
        "async def f(a):\n    return [b async for b in a if b]",
        "try:\n    pass\nexcept OSError as e: print(e)",
        "try:\n    pass\nexcept OSError as e:\n    def f():\n        return e\n    f()",
        "e = None\ntry:\n    pass\nexcept OSError as e:\n    pass\nprint(e)",
        "def f(e):\n    try:\n        pass\n    except OSError as e:\n        pass\n    return e",
        "try:\n    pass\nexcept OSError as e:\n    try:\n        pass\n    except TypeError as e:\n        pass\n    print(e)",
        "if TYPE_CHECKING:\n    from a import B\ndef f(b: B, c: 'B') -> B:\n    d: B = b\n    return d\nTYPE_CHECKING = False",
        "import typing\nif typing.TYPE_CHECKING:\n    from a import B\nelse:\n    B = object\nclass C(B): pass",
        "import typing\nif typing.TYPE_CHECKING:\n    from a import B\n    C = list[B]\nif typing.TYPE_CHECKING:\n    print(B)",
        "import typing as t\nif t.TYPE_CHECKING:\n    from a import B\ndef f():\n    from b import B\n    return B",
        "import typing as t\nif t.TYPE_CHECKING:\n    from a import B\nif not t.TYPE_CHECKING:\n    B = int\nB()",
        "f = lambda *a, b=1, **c: (a, b, c)",
        pytest.param("type A[T] = list[T]\ndef f[S](a: S) -> S:\n    return a\nclass C[U]:\n    a: U", marks=pytest.mark.skipif(
            sys.version_info < (3, 12), reason="syntax of Python 3.12")),
    ],
)  # fmt: skip
def test_a_name_that_something_may_define_is_left_alone(text: str) -> None:
    assert undefined(text) == ""


TYPING = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from decimal import Decimal\n\n"


@pytest.mark.parametrize("use", ["x = Decimal(1)", "def f():\n    return Decimal(1)", "class A(Decimal): pass"])
def test_a_name_for_type_checkers_is_undefined_at_run_time(use: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(TYPING + use)
    command = [str(RUFF), "check", "--isolated", "--no-cache", "--select", "TC004", str(tmp_path)]

    assert undefined(TYPING + use) == "Decimal"
    assert "TC004" in subprocess.run(command, capture_output=True, text=True, check=False).stdout


def test_only_names_that_are_new_count() -> None:
    assert undefined("print(injected, missing)", old="print(injected)") == "missing"
    assert undefined("print(injected)\nprint(injected)", old="print(injected)") == ""


@pytest.mark.slow
def test_names_are_judged_like_a_linter_does(figure: Any) -> None:
    """In the library of Python no name is called undefined that ruff knows, and none is missed but in files that use `exec`."""
    paths = [*LIBRARY.glob("*.py"), *(path for folder in FOLDERS for path in (LIBRARY / folder).rglob("*.py"))]
    command = [str(RUFF), "check", "--isolated", "--no-cache", "--no-respect-gitignore", "--select", "F821"]
    command += ["--output-format", "json", "--target-version", f"py3{sys.version_info.minor}", *map(str, paths)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    theirs = {(each["filename"], each["message"].split("`")[1]) for each in found if each["code"] == "F821"}
    files = {path for path, _ in theirs}
    ours = {(str(path), name) for path in paths if (name := undefined(path.read_bytes().decode("utf-8", "replace")))}

    figure(
        "names that only we call undefined",
        f"{len(ours - theirs)} of {len(ours)} in {len(paths)} files; ruff: {len(theirs)}",
    )
    assert len(paths) > 300
    assert ours <= theirs
    defining = (
        b"exec(",
        b"globals(",
        b"NameError",
        b"\ndel ",
    )  # what the gate leaves alone: it may define or remove names
    plain = {path for path in files if not any(each in Path(path).read_bytes() for each in defining)}
    assert {path for path, _ in ours} >= plain
    assert plain


def idle(body: str, before: str = "") -> bool:
    lines = "\n".join(f"        {line}" for line in body.split("\n"))
    file = analyzed(f"{before}class A(Base):\n    def f(self, event, count=0):\n{lines}")
    owner = file.tree.body[-1]
    assert isinstance(owner, ast.ClassDef)
    assert isinstance(owner.body[0], ast.FunctionDef)
    return is_idle(file, owner.body[0], owner)


def test_a_getter_of_an_attribute_that_is_always_the_same_is_not_idle() -> None:
    file = analyzed('class Quay:\n    flag = "red"\n\n    def shown(self):\n        return {"flag": self.flag}\n')
    owner = file.tree.body[-1]
    assert isinstance(owner, ast.ClassDef)
    assert isinstance(owner.body[1], ast.FunctionDef)
    assert not is_idle(file, owner.body[1], owner)


@pytest.mark.parametrize(
    "body",
    [
        "return event['a']",
        "return count + 1",
        "return self.limit",
        "self.count = 1",
        "del self.count",
        "event['a'] = 1",
        "self.send('a')",
        "self.items()",
        "send('a')",
        "if count > 3:\n    return True\nreturn False",
        "return 1 if count else 2",
        "while count:\n    return 1",
        "for each in event:\n    return each",
        "for each in event:\n    if each:\n        return True\nreturn False",
        "try:\n    int(event)\nexcept ValueError:\n    return False\nreturn True",
        "if not event:\n    raise ValueError(event)",
        "assert count > 0",
        "yield event",
        "x = event['a']\ny = x\nreturn y",
        "match event:\n    case 1:\n        return 1\n    case _:\n        return 2",
        "with self.open() as file:\n    pass",
        "global x\nx = 1",
        "list(map(self.send, event))",
        "[self.send(each) for each in event]",
        "return Order(event)",
        "return f'{event}'",
        "return 'x'.replace('x', event)",
        "self.board.replace('a', 'b')",
        "order = self.orders[0]\norder.replace(1, 2)",
        "event.title()",
        "os.replace('a', 'b')",
        "get('board').replace('a', 'b')",
        "getattr(self, 'board').replace('a', 'b')",
    ],
)
def test_a_body_that_does_something_is_not_idle(body: str) -> None:
    assert not idle(body)


OLD_CLASS = "class A:\n    def f(self, event):\n        self.send(event)\n"


@pytest.mark.parametrize(
    "text",
    [
        OLD_CLASS + "    f = lambda self, event: None\n",
        OLD_CLASS + "    f: object = lambda self, event: print()\n",
        OLD_CLASS + "    f = None\n",
        "class A:\n    f = lambda self, event: 1\n",
        "class A:\n    f = 3\n",
    ],
)
def test_the_last_binding_of_a_method_must_do_something(text: str) -> None:
    refusal = check_bodies(analyzed(OLD_CLASS), analyzed(text))

    assert refusal is not None
    assert (refusal.code, refusal.message.split()[0]) == ("G2.emptied", "A.f")


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    f = None\n    def f(self, event):\n        self.send(event)\n",
        OLD_CLASS + "    f = logged(f)\n",
        OLD_CLASS + "    g = f = lambda self, event: self.send(event)\n",
        OLD_CLASS + "    def g(self):\n        f = None\n",
        OLD_CLASS + "f = None\n",
    ],
)
def test_a_method_whose_last_binding_does_something_is_not_emptied(text: str) -> None:
    assert check_bodies(analyzed(OLD_CLASS), analyzed(text)) is None


@pytest.mark.parametrize(
    "body",
    [
        "'order'.title()",
        "f'order {event}'.replace('a', 'b').count('a')",
        "text = 'order'\ntext.replace('a', 'b')",
        "text = 'order'\ntext.strip().center(20).partition(' ')",
        "str(event).title()",
        "event['name'].startswith('a')",
        "if event['name'].isdigit():\n    'a'.capitalize()",
        "return 'x'.index('x')",
    ],
)
def test_a_body_that_only_computes_from_text_is_idle(body: str) -> None:
    assert idle(body)


NEVER = [
    *("0", "not 1", "[]", "()", "{}", "''", "1 > 2", "'a' in 'b'", "False and event", "not [event]"),
    *("not {**event, 1: 2}", "1 < 'a'"),
]
MAYBE = [
    *("event", "[*event]", "{*event}", "{**event}", "not event", "1 < count", "1 < 2 < count", "event or 0"),
    "1 is 2",
]
GUARDS = [
    "if {}:\n    self.send(event)",
    "while {}:\n    self.send(event)",
    "x = self.send(event) if {} else 1",
    "({}) and self.send(event)",
    "not ({}) or self.send(event)",
    "if not ({}):\n    pass\nelse:\n    self.send(event)",
]


@pytest.mark.parametrize("guard", GUARDS)
def test_code_behind_a_constant_condition_is_idle_if_it_never_runs(guard: str) -> None:
    assert all(idle(guard.format(condition)) for condition in NEVER)
    assert not any(idle(guard.format(condition)) for condition in MAYBE)


def test_a_loop_over_nothing_is_idle() -> None:
    assert idle("for each in ():\n    self.send(each)")
    assert not idle("for each in ():\n    pass\nelse:\n    self.send(event)")
    assert not idle("for each in (1,):\n    self.send(each)")


FUNCTIONS = """
from abc import abstractmethod
from copy import copy
from functools import partial, wraps
from collections import deque
from contextlib import ExitStack
import asyncio, json, random, sys, time

BOARD = Board()
ROUTES = {"a": print}

def logged(function):
    @wraps(function)
    def inner(*args, **named):
        print(function.__name__)
        return function(*args, **named)
    return inner

def configured(size):
    def decorate(function):
        return function
    return decorate

class Box:
    def __init__(self, board):
        self.board = board
    def put(self, text):
        self.board.put(text)
"""
LIVE = [
    "def tell():\n    yield self.send(event)\nlist(tell())",
    "def tell():\n    yield self.send(event)\nfor _ in tell():\n    pass",
    "def tell():\n    self.send(event)\n    return ()\nfor _ in tell():\n    pass",
    "for found in map(self.send, event):\n    pass",
    "any(self.send(each) for each in event)",
    "sorted(event, key=self.send)",
    "max(event, key=lambda each: self.send(each))",
    "sum((self.send(each) for each in event), 0)",
    "return next((each for each in event if each), '')",
    "is_new = False\nfor each in event:\n    if is_new:\n        self.send(each)\n    is_new = True",
    "is_new = False\nwhile count:\n    if is_new:\n        self.send(event)\n    is_new = not is_new",
    "seen = []\nfor each in event:\n    for other in seen:\n        self.send(other)\n    seen.append(each)",
    "seen = {}\nseen.update(event)\nfor each in seen:\n    self.send(each)",
    "found = []\nother = found\nother.append(event)\nfor each in found:\n    self.send(each)",
    "found = []\nself.fill(found)\nfor each in found:\n    print(each)",
    "def fill(items):\n    items.append(event)\nfound = []\nfill(found)\nif found:\n    self.send()",
    "is_set = False\ndef change():\n    nonlocal is_set\n    is_set = True\nchange()\nif is_set:\n    self.send()",
    "is_set = False\ntry:\n    event['a']\n    is_set = True\nfinally:\n    if not is_set:\n        self.send()",
    "is_set = False\ntry:\n    is_set = True\n    event['a']\nexcept KeyError:\n    if is_set:\n        self.send()",
    "try:\n    event['a']\nexcept KeyError:\n    self.send()",
    "try:\n    import a_library\nexcept ImportError:\n    self.send()",
    "try:\n    raise ValueError(event)\nexcept ValueError:\n    self.send()",
    "try:\n    raise ValueError(event)\nfinally:\n    self.send()",
    "with suppress(KeyError):\n    event['a']\n    return\nself.send()",
    "while True:\n    if event.poll():\n        break\nself.send()",
    "for each in event:\n    break\nelse:\n    self.send()",
    "while count > 0:\n    count -= 1\n    self.send()",
    "left = 3\nwhile left:\n    self.send()\n    left -= 1",
    "a, b = 0, 1\nfor _ in range(3):\n    a, b = b, a\n    if a:\n        self.send()",
    "match event:\n    case {'a': a}:\n        self.send(a)",
    "match count:\n    case 0 | 1:\n        self.send()",
    "if isinstance(event, dict):\n    self.send()",
    "if count == 0:\n    self.send()",
    "if count is None:\n    self.send()",
    "def tell(text, is_on=False):\n    if is_on:\n        self.send(text)\ntell('a', is_on=True)",
    "def tell(text, is_on=False):\n    if is_on:\n        self.send(text)\ntell(*event)",
    "def tell(text, is_on=False):\n    if is_on:\n        self.send(text)\ntell(**event)",
    "def walk(each):\n    if each:\n        walk(each[1:])\n    self.send(each)\nwalk(event)",
    "actions = [self.send]\nfor action in actions:\n    action(event)",
    "actions = {'a': lambda: self.send(event)}\nactions['a']()",
    "actions = {}\nactions['a'] = self.send\nactions[event['a']](event)",
    "send = self.send if count else print\nsend(event)",
    "send = partial(self.send, event)\nsend()",
    "(lambda: self.send(event))()",
    "self.later(lambda: None)",
    "Box(BOARD).put(event)",
    "Box(self.board).put(event)",
    "box = Box(event)\nbox.put('a')",
    "BOARD.put(1)",
    "ROUTES[event['a']](event)",
    "board = self.board\nboard.put(1)",
    "boards = [self.board]\nboards[0].put(1)",
    "for board in [self.board, self.other]:\n    board.put(1)",
    "self.items += [event]",
    "self.items[0].name = 'a'",
    "copied = dict(event)\ncopied['items'].append(1)",
    "self.state['a'] = 1",
    "setattr(self, 'a', 1)",
    "getattr(self, 'send')(event)",
    "print(event, file=sys.stderr)",
    "random.shuffle(self.items)",
    "next(self.numbers)",
    "return time.time()",
    "return json.dumps(event)",
    "return lambda: self.send(event)",
    "def later():\n    return event\nreturn later",
    "found = []\nfor each in event:\n    found.append(each)\nreturn found",
    "found = {}\nfound['a'] = event\nreturn {'b': found}",
    "found = ['a']\nfound.append(event)\nreturn ', '.join(found)",
    "total = 0\nfor each in event:\n    total += 1\nreturn total",
    "found = {'a': 1}\nif count:\n    found['a'] = 2\nreturn found",
    "def choose():\n    if count:\n        return 1\n    return 2\nreturn choose()",
    "@logged\ndef tell():\n    self.send(event)\ntell()",
    "@configured(3)\ndef tell():\n    self.send(event)\ntell()",
    "@unknown\ndef tell():\n    self.send(event)\ntell()",
    "asyncio.create_task(self.sending())",
    "def tell():\n    self.send(event)\nasyncio.to_thread(tell)",
    "async def tell():\n    self.send(event)\nasyncio.run(tell())",
    "async def tell():\n    self.send(event)\ntask = asyncio.gather(tell(), tell())",
    "if count:\n    raise ValueError\nreturn 1",
    "x = x_of(event)",
    "[self.send(a) for a in event if a]",
    "{self.send(a): 1 for a in event}",
    "count and self.send()",
    "None or self.send()",
    "(send := self.send)(event)",
    "f'{self.send(event)}'",
    "if (found := self.find(event)) and found > 1:\n    pass",
    "del event['a']",
    "super().f(event)",
    "with ExitStack() as stack:\n    stack.callback(self.send, event)",
    "waiting = deque()\nwaiting.append(lambda: self.send(event))\nwaiting.popleft()()",
    "for each, other in zip(event, [1, 2]):\n    self.send(each)",
    "if isinstance(event, (int, dict)):\n    self.send(event)",
]


@pytest.mark.parametrize("body", LIVE)
def test_work_that_looks_idle_is_followed_to_its_effect(body: str) -> None:
    assert not idle(body, FUNCTIONS)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["asyncio", "json"])
def test_hardly_a_function_of_the_library_is_called_idle(folder: str, figure: Any) -> None:
    """Functions that are more than a `return`, `raise` or `pass` were written to do something."""
    called, count = [], 0
    for path in (LIBRARY / folder).glob("*.py"):
        file = analyzed(path.read_text())
        for owner in [None, *(node for node in ast.walk(file.tree) if isinstance(node, ast.ClassDef))]:
            for node in (owner or file.tree).body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    count += 1
                    plain = (ast.Pass, ast.Return, ast.Raise, ast.Expr)
                    is_short = all(isinstance(each, plain) for each in node.body)
                    called += [f"{path.name}:{node.lineno}"] * (not is_short and is_idle(file, node, owner))
    figure(f"functions of {folder} called idle", f"{len(called)} of {count}")
    assert len(called) * 100 <= count, called


@pytest.mark.parametrize(
    "text",
    [
        '"""A heading:\n\n## Proposal\n\n### Edit\n\n```python\nx = 1\n```\n"""\n',
        "# ## a heading, and an edit\n",
        "text = 'a </think> b'\n",
        'text = """<think> is a tag\n"""\n',
        "text = '### edit replace_symbol a.py A.f'\n",
        "# proposal: see the ticket\n",
        "# nothing\n",
        "x = 1  # nothing\n",
        'PROMPT = """\n<think>\n</think>\n"""\n',
    ],
)
def test_markdown_is_no_mark_of_an_answer(text: str) -> None:
    assert check_marks("a.py", b"x = 1\n", text.encode()) is None


def test_marks_that_the_file_has_already_are_left_alone() -> None:
    old = b'"""\n## proposal\n"""\n'

    assert check_marks("a.py", old, old + b"x = 1\n") is None
    assert check_marks("a.py", old, old + b"# ## proposal\n") is not None


def test_an_effect_in_one_of_several_files_is_enough() -> None:
    assert check_effect({"a.py": (b"x = 1\n", b"x = 1  # one\n")}) is not None
    assert check_effect({"a.py": (b"x = 1\n", b"x = 1  # one\n"), "b.py": (b"x = 1\n", b"x = 2\n")}) is None


@pytest.mark.parametrize(
    ("facts", "kind", "other"),
    [
        ([Fact(bool, False)], ast.NotEq, 0),
        ([Fact(bool, False)], ast.NotEq, ""),
        ([Fact(ast.NotEq, 0)], bool, True),
        ([Fact(ast.NotEq, "")], bool, True),
        ([Fact(ast.NotEq, None)], bool, True),
    ],
)
def test_a_value_of_which_no_type_is_known_may_be_none_or_of_another_type(
    facts: list[Fact], kind: type, other: object
) -> None:
    assert decide(facts, kind, other) is None


def test_what_is_put_in_order_is_a_number() -> None:
    assert decide([Fact(ast.Gt, 5)], ast.Lt, 3) is False
    assert decide([Fact(ast.Eq, 5)], bool, True) is True
