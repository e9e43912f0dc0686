"""GB301, GB302 and GB303: shared defaults, `except:` and exceptions that vanish."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from graphbus_core.compiler import rules
from tests.checking import assert_marked, fixed, found, only_finding, read, text_of


def method(signature: str, body: str, *, head: str = "") -> str:
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return f"{head}class A(GraphBusNode):\n    def f({signature}):\n{lines}"


CHANGED = {
    "append": ("self, x=[]", "x.append(1)"),
    "a key": ("self, x={}", "x['a'] = 1"),
    "+=": ("self, x=[]", "x += [1]"),
    "+= of an entry": ("self, x={'a': 1}", "x['a'] += 1"),
    "keyword only": ("self, *, x=[]", "x.append(1)"),
    "in an inner function": ("self, x=[]", "def inner():\n    x.append(1)\nreturn inner"),
    "made by a call": ("self, x=list()", "x.append(1)"),
    "made by a class": ("self, x=collections.deque()", "x.appendleft(1)"),
}
NOT_CHANGED = {
    "only read": ("self, x=[]", "return [each for each in x if each in x], len(x), x[0], x.copy()"),
    "given another value": ("self, x=[]", "x = list(x)\nx.append(1)"),
    "handed on": ("self, x=[]", "return self.g(x)"),
    "immutable": ("self, x=(), y='', z=None, n=frozenset()", "return x, y, z, n"),
    "a memory on purpose": ("self, cache={}, _seen=set()", "cache['a'] = 1\n_seen.add(1)"),
    "an inner parameter of that name": ("self, x=[]", "def inner(x):\n    x.append(1)\nreturn inner"),
    "another object's method": ("self, x=[]", "self.log.append(x)"),
    "a loop variable": ("self, x=[]", "for x in ([], []):\n    x.append(1)"),
}


@pytest.mark.parametrize(("signature", "body"), CHANGED.values(), ids=CHANGED)
def test_a_default_that_is_changed_is_found(tmp_path: Path, signature: str, body: str) -> None:
    assert [code for _, _, code in found(read(tmp_path, method(signature, body)), "GB301")] == ["GB301"]


@pytest.mark.parametrize(("signature", "body"), NOT_CHANGED.values(), ids=NOT_CHANGED)
def test_a_default_that_does_no_harm_is_left_alone(tmp_path: Path, signature: str, body: str) -> None:
    assert found(read(tmp_path, method(signature, body)), "GB301") == []


MADE_ANEW = {
    "annotated": (
        method("self, x: list[int] = [1]", "x.append(1)"),
        method("self, x: list[int] | None = None", "if x is None:\n    x = [1]\nx.append(1)"),
    ),
    "docstring and comment": (
        method("self, *, x={}", "'''Text.'''\n# first\nx['a'] = 1"),
        method("self, *, x=None", "'''Text.'''\nif x is None:\n    x = {}\n# first\nx['a'] = 1"),
    ),
}


@pytest.mark.parametrize(("before", "after"), MADE_ANEW.values(), ids=MADE_ANEW)
def test_the_default_is_made_anew_in_each_call(tmp_path: Path, before: str, after: str) -> None:
    assert text_of(fixed(read(tmp_path, before), "GB301")) == after


SAFE = {
    "append": ("self, x=[]", "x.append(1)"),
    "+=": ("self, x=[]", "x += [1]"),
    "a key": ("self, k, x={}", "x[k] = 1"),
    "setdefault": ("self, k, x={}", "x.setdefault(k, []); self.log(k)"),
    "in an inner function": CHANGED["in an inner function"],
}
MEMORIES = {
    "a set of what was seen": (
        "self, key, seen=set()",
        "if key in seen:\n    return False\nseen.add(key)\nreturn True",
    ),
    "a counter": ("self, c=[0]", "c[0] += 1\nreturn c[0]"),
    "a batch": ("self, item, x=[]", "x.append(item)\nif len(x) == 10:\n    self.g(x)\n    x.clear()"),
    "returned": ("self, item, x=[]", "x.append(item)\nreturn x"),
    "kept": ("self, item, x=[]", "x.append(item)\nself.x = x"),
    "handed on": ("self, item, x=[]", "x.append(item)\nself.g(*x)"),
    "iterated": ("self, item, x=[]", "for each in x:\n    self.log(each)\nx.append(item)"),
    "a log of texts": ("self, text, x=[]", "x.append(text)\nreturn '\\n'.join(x)"),
    "joined before": ("self, x=[]", "self.log(','.join(x))\nx.append('a')"),
    "added on one path": ("self, x=[]", "if self.is_first:\n    x.append('a')\nreturn ','.join(x)"),
    "taken away": ("self, x=[1, 2]", "return x.pop()"),
    "removed": ("self, x={'a': 1}", "del x['a']"),
    "by reflection": ("self, x=[]", "x.append(1)\nreturn locals()"),
    "a closure": ("self, x=[]", "def inner():\n    x.append(1)\n    return x\nreturn inner"),
    "made of something that may change": ("self, x=[now()]", "x.append(1)"),
}


@pytest.mark.parametrize(("signature", "body"), SAFE.values(), ids=SAFE)
def test_what_nobody_looks_at_is_safe_to_fix(tmp_path: Path, signature: str, body: str) -> None:
    finding = only_finding(read(tmp_path, method(signature, body)), "GB301")
    assert (finding.is_fixable, finding.is_fix_safe) == (True, True)


@pytest.mark.parametrize(("signature", "body"), MEMORIES.values(), ids=MEMORIES)
def test_what_may_be_a_memory_is_reported_and_left_alone(tmp_path: Path, signature: str, body: str) -> None:
    project = read(tmp_path, method(signature, body))
    finding = only_finding(project, "GB301")
    assert (finding.is_fixable, finding.is_fix_safe) == (False, False)
    assert rules.fix_for(replace(finding, is_fixable=True), project) is None


KEPT = {
    "an annotation that is no plain text": method('self, x: "list" "[int]" = []', "x.append(1)"),
    "None means something": method("self, x=[]", "if x is None:\n    return\nx.append(1)"),
    "several lines": method("self, x=[\n    1,\n]", "x.append(1)"),
    "on the line of the def": "class A(GraphBusNode):\n    def f(self, x=[]): x.append(1)\n",
    "a handler": 'class A(GraphBusNode):\n    @subscribe("/X")\n    def f(self, event, x=[]):\n        x.append(event)\n',
    "a name of the class": "class A(GraphBusNode):\n    SIZE = 3\n    def f(self, x=[SIZE]):\n        x.append(1)\n",
    "two methods of one name": "class A(GraphBusNode):\n    if A:\n        def f(self, x=[]):\n            x.append(1)\n"
    "    else:\n        def f(self): ...\n",
}


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_a_default_is_kept_where_none_could_mean_something_else(tmp_path: Path, text: str) -> None:
    findings = rules.check(read(tmp_path, text), select=["GB301"])
    assert findings
    assert not any(each.is_fixable for each in findings)


def trying(clause: str, body: str) -> str:
    return method("self", f"for each in range(3):\n    try:\n        self.g()\n    {clause}  #! mark\n        {body}")


BARE = {
    "log": ("except:", "self.log('x')", "GB302"),
    "pass": ("except:", "pass", "GB302 GB303"),
    "raise on one path": ("except:", "if each: raise", "GB302"),
    "Exception and pass": ("except Exception:", "pass", "GB303"),
    "BaseException and continue": ("except BaseException:", "continue", "GB303"),
    "a tuple with Exception": ("except (KeyError, Exception):", "pass", "GB303"),
}
FINE = {
    "raise": ("except:", "raise", ""),
    "clean up and raise": ("except:", "self.log('x'); raise", ""),
    "raise on every path": (
        "except:",
        "if each:\n            raise\n        else:\n            raise RuntimeError",
        "",
    ),
    "a named exception": ("except KeyError:", "pass", ""),
    "several named exceptions": ("except (KeyError, ValueError):", "continue", ""),
    "logged": ("except Exception:", "self.log('failed')", ""),
    "answered": ("except Exception as error:", "return {'error': str(error)}", ""),
}


@pytest.mark.parametrize(("clause", "body", "codes"), [*BARE.values(), *FINE.values()], ids=[*BARE, *FINE])
def test_clauses_that_catch_or_hide_too_much_are_found(tmp_path: Path, clause: str, body: str, codes: str) -> None:
    assert_marked(tmp_path, trying(clause, body).replace("#! mark", f"#! {codes}"), "GB302", "GB303")


def test_a_bare_except_lets_ctrl_c_through(tmp_path: Path) -> None:
    before = read(tmp_path, trying("except :", "self.log('x')").replace("#! mark", "# except:"))
    assert text_of(fixed(before, "GB302")) == text_of(before).replace("except :  #", "except Exception :  #")


TRIED = {
    "sys.exit": "sys.exit(3)",
    "raise SystemExit": "raise SystemExit(1)",
    "a command line": "return parser.parse_args(argv)",
    "yield": "yield 1",
    "deep inside": "if self:\n        for _ in range(3): sys.exit(_)",
}


@pytest.mark.parametrize("tried", TRIED.values(), ids=TRIED)
def test_a_bare_except_stays_where_it_catches_more_than_exceptions_on_purpose(tmp_path: Path, tried: str) -> None:
    text = method("self", f"try:\n    {tried}\nexcept:\n    self.log(1)")
    assert not only_finding(read(tmp_path, text), "GB302").is_fixable


@pytest.mark.parametrize("tried", ["await self.g()", "async with self.g(): ...", "async for _ in self.g(): ..."])
def test_a_bare_except_stays_where_a_task_may_be_cancelled(tmp_path: Path, tried: str) -> None:
    text = method("self", f"try:\n    {tried}\nexcept:\n    self.log(1)").replace("def f", "async def f")
    assert not only_finding(read(tmp_path, text), "GB302").is_fixable


def test_a_bare_except_stays_where_exception_means_something_else(tmp_path: Path) -> None:
    for line in ["Exception = OSError", "from mine import Exception", "from mine import *"]:
        project = read(tmp_path, f"{line}\n" + trying("except:", "self.log('x')"))
        assert not only_finding(project, "GB302").is_fixable


LETTER = method(
    "self, text, remarks=[]", 'remarks.append("Your shop")\nreturn "\\n".join(["Dear customer", text, *remarks])'
)


def test_two_calls_no_longer_share_the_default(tmp_path: Path) -> None:
    names: dict[str, object] = {}
    before = read(tmp_path, LETTER)
    assert not only_finding(before, "GB301").is_fix_safe
    exec(fixed(before, "GB301").source("agents.py").text, names)
    agent = names["A"]()  # type: ignore[operator]
    letter = "Dear customer\n{}\nYour shop"
    assert [agent.f("a"), agent.f("b")] == [letter.format("a"), letter.format("b")]


def test_what_another_agent_may_call_gets_no_other_result(tmp_path: Path) -> None:
    caller = "class B(GraphBusNode):\n    def go(self):\n        return self.call('A', 'f', text='a')\n"
    assert not only_finding(read(tmp_path, LETTER + caller), "GB301").is_fixable
