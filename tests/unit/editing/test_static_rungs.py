"""The rungs that only read: which characters they read, how long they take, and what a person can allow them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from graphbus_core.compiler.project import Project
from graphbus_core.editing.gate import Gate, check_encoding, check_source
from graphbus_core.editing.rungs.contract import check_agents, check_declared
from graphbus_core.editing.rungs.scope import changed_lines
from graphbus_core.editing.workspace import Workspace
from graphbus_core.model.config import ResolvedBuild, Settings
from graphbus_core.model.powers import Powers
from graphbus_core.model.proposals import CodeChange, GateReport, Proposal, SchemaChange
from tests.project_files import write_project
from tests.reading import read_files

Figure = Callable[[str, object], None]

HEAD = '''"""Orders."""

from __future__ import annotations

import json

from graphbus_core import GraphBusNode, subscribe


class Orders(GraphBusNode):
    """Takes orders."""

    @subscribe("/Order/Placed")
    def on_placed(self, event):
        self.total = event["total"]
'''
STEP = '''
    def step_{n}(self, items: list, rate: float = 1.0) -> dict:
        """Work on the items."""
        total = sum(item["price"] * item["qty"] for item in items if item.get("ok"))
        if total > {n}:
            self.log("large order %s", json.dumps(items))
        return {{"total": round(total * rate, 2), "count": len(items)}}
'''
LAST = '        self.total = event["total"]\n'


def test_a_package_may_import_its_own_modules(tmp_path: Path) -> None:
    write_project(tmp_path, {"agents/__init__.py": "from . import names\n", "agents/names.py": "RATE = 2\n"})
    before = HEAD.replace("import json\n", "import json\n\nfrom . import names\n")
    report = judged(tmp_path, "self.rate = names.RATE", before)
    assert code_of(report) == "G5.unverified"


def judged(tmp_path: Path, line: str, before: str = HEAD, powers: Powers | None = None) -> GateReport:
    """Let a change that adds a line climb; nothing is run, so that a change without fault ends at G5."""
    write_project(tmp_path, {"pyproject.toml": '[project]\nname = "shop"\n', "agents/orders.py": before})
    settings = Settings(powers=powers or Powers())
    config = ResolvedBuild(root=str(tmp_path), paths=(str(tmp_path / "agents"),), settings=settings)
    project = Project.read(config, cache=False)
    change = CodeChange(
        file_path="agents/orders.py",
        target="",
        change_type="modify",
        operation="search_replace",
        old_code=LAST,
        new_code=f"{LAST}        {line}\n",
    )
    proposal = Proposal(
        proposal_id="P001", round=0, src="Orders", intent="x", title="x", reason="x", code_change=change
    )
    return Gate(project, config, None).check(proposal, Workspace(project))


def code_of(report: GateReport) -> str:
    return report.failure.code if report.failure else ""


# --- one text for people, tools and Python ----------------------------------------------------


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"# -*- coding: latin-1 -*-\nx = 1\n", 1),
        (b"#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\nx = 1\n", 1),
        (b"# coding: rot13\nk = 1\n", 1),
        (b"# coding: utf-7\nx = 1\n", 1),
        (b"\xef\xbb\xbf# coding: latin-1\nx = 1\n", 0),
        ("x = 'ä'\n".encode("latin-1"), 0),
        (b"x = 1\n# a comment\rimport os\n", 2),
        (b"x = 1\r\r\ny = 2\r\n", 1),
        (b"x = '''a\rb'''\n", 1),
    ],
)
def test_a_file_that_python_reads_otherwise_than_people_is_refused(data: bytes, line: int) -> None:
    problem = check_encoding("f.py", data)

    assert problem
    assert (problem.code, problem.line) == ("G2.encoding", line)
    assert check_source("f.py", data, 11) == problem


# --- time ---------------------------------------------------------------------------------------

SIZE = 98_000
LARGE = {
    "addresses": 'x = "' + "://" * (SIZE // 3) + '"',
    "tokens": 'x = "' + "eyJaaaaaaaa" * (SIZE // 11) + '"',
    "attributes": 'x = "' + "._" * (SIZE // 2) + '"',
    "dotted numbers": 'x = "' + "1." * (SIZE // 2) + '"',
    "colons": 'x = "' + "a:" * (SIZE // 2) + '"',
    "hashes": "# " + "#" * SIZE,
    "underscores": 'x = "' + "_" * SIZE + '"',
}


@pytest.mark.parametrize("name", LARGE)
def test_no_text_takes_the_static_rungs_longer_than_its_length(tmp_path: Path, name: str, figure: Figure) -> None:
    begun = time.process_time()
    judged(tmp_path, LARGE[name])
    used_s = time.process_time() - begun

    figure(f"processor time of the static rungs on 98 kB of {name}", f"{used_s:.1f} s")
    assert used_s < 30  # a pattern that looks at everything from everywhere takes over a hundred


def test_the_largest_file_that_is_allowed_climbs_soon(tmp_path: Path, figure: Figure) -> None:
    before = HEAD
    number = 0
    while len(before) + 400 < Settings().gate.max_file_size_bytes:
        before += STEP.format(n=number)
        number += 1

    begun = time.process_time()
    report = judged(tmp_path, "self.count = 1", before)
    used_s = time.process_time() - begun

    figure("processor time of the static rungs on the largest file", f"{used_s:.1f} s for {len(before)} bytes")
    assert code_of(report) == "G5.unverified"
    assert used_s < 30


@pytest.mark.parametrize("line", ["x = event" + ".a" * 900, 'x = "a"' + ' + "a"' * 2500])
def test_code_that_is_nested_without_end_is_refused_with_words(tmp_path: Path, line: str) -> None:
    report = judged(tmp_path, line)

    assert code_of(report) in ("G2.size", "G1.parse", "G2.compile")


def test_names_that_stand_for_ever_more_are_refused_after_so_many_steps(tmp_path: Path, figure: Figure) -> None:
    steps = [
        f"v{n} = (v{n - 1}, v{n // 2}, v{n // 3}, v{n // 4}); open(v{n}); open(v{n}); open(v{n})" for n in range(1, 380)
    ]
    begun = time.process_time()

    report = judged(tmp_path, "v0 = event\n        " + "\n        ".join(steps))

    used_s = time.process_time() - begun
    figure("processor time of the static rungs on names without end", f"{used_s:.1f} s")
    assert code_of(report) == "G2.size"
    assert used_s < 30


def test_code_that_is_nested_too_deeply_to_be_judged_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr("graphbus_core.editing.gate.GateRun.check_sense", give_up)
    report = judged(tmp_path, "x = event")
    assert code_of(report) == "G2.size"


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        ("", "", 0),
        ("abc", "abc", 0),
        ("abc", "axc", 1),
        ("abc", "c", 2),
        ("abcd", "dcba", 3),
        ("", "abc", 3),
        ("ab", "cdef", 4),
    ],
)
def test_lines_that_are_removed_or_added_are_counted(before: str, after: str, count: int) -> None:
    old, new = ([letter.encode() for letter in text] for text in (before, after))

    assert changed_lines(old, new, 10) == count
    assert (changed_lines(old, new, 1) > 1) == (count > 1)


# --- powers that a person has declared ------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "powers"),
    [
        (
            "import socket; socket.create_connection((event['host'], 80))",
            "G3.network",
            Powers(network=("bank.example",)),
        ),
        ('x = "https://bank.example/charge"', "G3.url", Powers(network=("bank.example",))),
        ('open("out.txt", "w").close()', "G3.files", Powers(write=("out.txt",))),
        ('x = open("/srv/rates.txt").read()', "G3.read", Powers(read=("/srv/rates.txt",))),
        ('import subprocess; subprocess.run(["true"])', "G3.process", Powers(processes=True)),
        ('import os; x = os.environ["REGION"]', "G3.environment", Powers(environment=("REGION",))),
    ],
)
def test_a_power_is_refused_until_it_is_declared(tmp_path: Path, line: str, code: str, powers: Powers) -> None:
    refused = judged(tmp_path, line)

    assert code_of(refused) == code
    assert refused.failure
    assert "[tool.graphbus.powers]" in refused.failure.message
    assert code_of(judged(tmp_path, line, powers=powers)) in ("G5.unverified", "G4.finding")


@pytest.mark.parametrize(
    ("line", "powers"),
    [
        ('x = "https://evil.example/"', Powers(network=("bank.example",))),
        ('x = "https://bank.example@evil.example/"', Powers(network=("bank.example",))),
        ('x = "https://evil.example/bank.example"', Powers(network=("bank.example",))),
        ('import os; x = os.environ.get("KEY", "REGION")', Powers(environment=("REGION",))),
        ("import os; x = dict(os.environ)", Powers(environment=("REGION",))),
        ('import os; x = os.environ["KEY"]', Powers(environment=("REGION",))),
        ("eval(event['text'])", Powers(network=("*",), write=(".",), read=(".",), processes=True, environment=("X",))),
        ("self._connection.publish('/x', {})", Powers(network=("*",), write=(".",), read=(".",), processes=True)),
        ("json.dumps = None", Powers(network=("*",), write=(".",), read=(".",), processes=True)),
        ("event.groupby('x')", Powers(network=("*",), write=(".",), read=(".",), processes=True)),
    ],
)
def test_no_declared_power_is_another_one(tmp_path: Path, line: str, powers: Powers) -> None:
    report = judged(tmp_path, line, powers=powers)

    assert code_of(report) in ("G3.url", "G3.environment", "G3.exec", "G3.node", "G3.patch", "G3.unknown")


def test_a_helper_with_two_powers_needs_both(tmp_path: Path) -> None:
    helper = (
        "import subprocess\n\n\ndef keep(text):\n    open('x.txt', 'w').write(text)\n    subprocess.run(['true'])\n"
    )
    write_project(tmp_path, {"lib/__init__.py": "", "lib/keeping.py": helper})
    line = 'from lib.keeping import keep; keep(event["total"])'

    assert code_of(judged(tmp_path, line, powers=Powers(write=("x.txt",)))) == "G3.process"
    assert code_of(judged(tmp_path, line, powers=Powers(processes=True))) == "G3.files"
    assert code_of(judged(tmp_path, line, powers=Powers(write=("x.txt",), processes=True))) == "G5.unverified"


# --- what counts as a power -----------------------------------------------------------------------

ITEM = HEAD.replace("class Orders", "class Item:\n    total = 0\n\n\nclass Orders")
HARMLESS = "G5.unverified"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("x = super", "G3.reflection"),
        ("x = [getattr]", "G3.reflection"),
        ("x = self.__class__.total", "G3.reflection"),
        ("x = type(self).__name__", HARMLESS),
        ("x = Item.mro()", "G3.reflection"),
        ('from operator import attrgetter; x = attrgetter(event["x"])(event)', "G3.reflection"),
        ('from operator import attrgetter; x = attrgetter("total")', HARMLESS),
        ('self.publish("/Order/Seen", {}, 3, 4)', "G3.node"),
        ('object.__setattr__(event, "total", 1)', "G3.patch"),
        ("item = Item(); item.total = 1", HARMLESS),
        ("Item.total = 1", "G3.patch"),
        ("event.SYSTEM_PROMPT = 1", "G3.prompt"),
        ("from lib import names; names.RATES.append(1)", "G3.patch"),
        ('self.total = event["text"].replace("a", "b")', HARMLESS),
        ('self.total = event["text"].replace(*event)', "G3.files"),
        ('self.total = event["text"].replace("a")', "G3.files"),
        ('self.total = event["text"].format(1 + 2, str(event))', HARMLESS),
        ('self.total = event["text"].format(event["a"] + 2)', "G3.reflection"),
        ('self.total = "{0:{1}} and }}".format(1, 2)', HARMLESS),
        ('self.total = "none".format(event["a"])', HARMLESS),
        ('self.total = "{0.total}".format(event)', "G3.reflection"),
        ('self.total = "{".format(event["a"])', HARMLESS),
        ("self.total = self.__class__.__name__", HARMLESS),
        ('from collections import deque; d = deque(); deque.append(d, event["a"])', HARMLESS),
        ('self.total = ("a{0}" + "b").format(event["a"])', HARMLESS),
        ('self.total = ("{0.to" + "tal}").format(event["a"])', "G3.reflection"),
        ('from collections import namedtuple; P = namedtuple("P", "x, y"); self.total = P(1, 2).y', HARMLESS),
        ("from types import SimpleNamespace; p = SimpleNamespace(rate=1); p.rate = 2; self.total = p.rate", HARMLESS),
        ('x = event["a"].format', "G3.reflection"),
        ('x: "print(1)" = 1', "G3.exec"),
        ('self.total = (len or str)(event["a"])', HARMLESS),
        ("class P: q = property(lambda self: 1)", HARMLESS),
        ("class P(metaclass=type): pass", "G3.base"),
        ("global fresh; fresh = 1", HARMLESS),
        ("import lib.missing", HARMLESS),
        ("from http import HTTPStatus; self.total = HTTPStatus.NOT_FOUND.value", HARMLESS),
        ('self.total = event.texts["a"].format(event["a"])', "G3.reflection"),
        ("import functools\n        @functools.wraps(len, assigned=())\n        def other(): pass", "G3.patch"),
        ("x = open(*event)", "G3.files"),
        ("x = open()", "G3.read"),
        ('with open("rates.csv") as file: x = file.read()', HARMLESS),
        ('with open("../rates.csv") as file: x = file.read()', "G3.read"),
        ('with open("settings.toml") as file: x = file.read()', "G3.read"),
        ('print("x", sep=",")', HARMLESS),
        ('import sys; print("x", sep=",", file=sys.stderr)', HARMLESS),
        ('print("x", file=event)', "G3.files"),
        ('print("x", **event)', "G3.files"),
    ],
)
def test_one_use_of_a_name_is_a_power_and_another_is_none(tmp_path: Path, line: str, code: str) -> None:
    write_project(tmp_path, {"lib/__init__.py": "", "lib/names.py": "RATES = []\n"})
    assert code_of(judged(tmp_path, line, ITEM)) == code


@pytest.mark.parametrize(("module", "code"), [("math", HARMLESS), ("os", "G3.environment")])
def test_a_name_of_a_star_import_is_judged_as_one_of_its_module(tmp_path: Path, module: str, code: str) -> None:
    name = {"math": "sqrt", "os": "getpid"}[module]
    before = HEAD.replace("import json\n", f"import json\nfrom {module} import *\n")
    assert code_of(judged(tmp_path, f"self.count = {name}({2 if name == 'sqrt' else ''})", before)) == code


# --- what becomes of agents and contracts -----------------------------------------------------------

TWO = """from graphbus_core import GraphBusNode


class One(GraphBusNode):
    pass


class Two(GraphBusNode):
    SYSTEM_PROMPT = "Be kind."
"""


@pytest.mark.parametrize(
    ("old", "new", "free", "told"),
    [
        ("", "", (), ("", "")),
        ("class One", "class Three", (), ("G4.agents", "These agents would appear or disappear: One, Three.")),
        ("class One", "class Three", ("One", "Three"), ("", "")),
        ("kind", "rude", (), ("G3.prompt", "The prompt of Two would change.")),
        (
            "    pass",
            "    IS_ARBITER = True",
            (),
            ("G3.arbiter", "The role as arbiter of One would change."),
        ),
    ],
)
def test_a_change_of_the_agents_themselves_is_refused(
    tmp_path: Path, old: str, new: str, free: tuple[str, ...], told: tuple[str, str]
) -> None:
    before = read_files(tmp_path / "before", {"agents.py": TWO})
    refusal = check_agents(before, read_files(tmp_path / "after", {"agents.py": TWO.replace(old, new)}), free)
    assert ((refusal.code, refusal.message) if refusal else ("", "")) == told


@pytest.mark.parametrize(
    ("declared", "actual", "told"),
    [
        ((), ("Stock.count",), ""),
        (("Stock.count",), (), ""),
        (("Stock.count",), ("Stock.count",), ""),
        (
            ("Stock.count",),
            ("/Stock/Low", "Stock.count", "Stock.sum"),
            "These contracts would change, but are not declared: /Stock/Low, Stock.sum.",
        ),
    ],
)
def test_contracts_that_change_beside_those_declared_are_named(
    declared: tuple[str, ...], actual: tuple[str, ...], told: str
) -> None:
    changes = [tuple(SchemaChange(method=name) for name in names) for names in (declared, actual)]
    refusal = check_declared(*changes)
    assert (refusal.message if refusal else "") == told
