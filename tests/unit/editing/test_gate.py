"""How the gate climbs: order, reports, what is tried once, what is not run and why."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from graphbus_core.compiler.discover import ModuleIndex
from graphbus_core.editing.gate import Gate, check_source
from graphbus_core.editing.rungs import trial_environment
from graphbus_core.editing.rungs.capability import AnalyzedFiles, CodeVersion, ProjectPowers, check_growth
from graphbus_core.editing.rungs.capability.sources import AllowedPackages
from graphbus_core.editing.rungs.codes import CODES
from graphbus_core.editing.rungs.trial_environment import TreeState
from graphbus_core.editing.sandboxes.process import FinishedProcess, ProcessSandbox
from graphbus_core.model.config import GateConfig, SafetyConfig
from graphbus_core.model.powers import Powers
from graphbus_core.model.proposals import RungResult
from tests.unit.editing.shop_project import Shop, code_of

ORDERS = "agents/orders.py"
START = TreeState("start", {})
ALL = ["G0", "G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8"]


class CountingSandbox(ProcessSandbox):
    """A real sandbox that remembers what it ran."""

    def __init__(self) -> None:
        self.commands: list[Sequence[str]] = []
        self.folders: list[Path] = []

    def run(self, command: Sequence[str], cwd: Path, **more: Any) -> FinishedProcess:
        self.commands.append(command)
        self.folders.append(cwd)
        return super().run(command, cwd, **more)


def counted(shop: Shop) -> CountingSandbox:
    """Give the shop a new gate whose sandbox counts."""
    sandbox = CountingSandbox()
    shop.gate = Gate(shop.project, shop.config, sandbox)
    return sandbox


def test_a_refusal_ends_the_climb_and_says_where(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    sandbox = counted(shop)

    report = shop.replace("2.5 * count", "eval('2.5') * count")

    assert not report.passed
    assert [rung.rung for rung in report.rungs] == ["G0", "G1", "G2", "G3"]
    assert [rung.status for rung in report.rungs] == ["passed"] * 3 + ["failed"]
    assert report.failure is not None
    assert (report.failure.code, report.failure.path, report.failure.line) == ("G3.exec", ORDERS, 21)
    assert sandbox.commands == []


def test_each_rung_is_told_of_when_it_has_ended(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    told: list[tuple[str, RungResult]] = []
    shop.gate.on_rung = lambda proposal, result: told.append((proposal, result))

    report = shop.replace("2.5 * count", "eval('2.5') * count")

    assert told == [("P001", rung) for rung in report.rungs]
    assert told[-1][1].status == "failed"


@pytest.mark.slow
def test_passing_all_rungs_reports_all_of_them_and_the_contract_change(tmp_path: Path) -> None:
    shop = Shop(tmp_path)

    report = shop.replace('"total": total})', '"total": total, "unit": "kg"})')

    assert report.passed
    assert [rung.rung for rung in report.rungs] == ALL
    (change,) = report.schema_changes
    assert change.method == "/Order/Created"
    assert change.output_schema_after is not None
    assert change.output_schema_after.names == {"sku", "count", "total", "unit"}


@pytest.mark.slow
def test_the_files_on_disk_are_never_written(tmp_path: Path) -> None:
    shop = Shop(tmp_path, with_tests=True)
    before = {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()}

    shop.replace("        total", "        from pathlib import Path\n        Path(__file__)\n        total")

    assert {path: path.read_bytes() for path in sorted(tmp_path.rglob("*")) if path.is_file()} == before


@pytest.mark.slow
def test_a_state_that_was_tried_is_not_tried_again(tmp_path: Path) -> None:
    shop = Shop(tmp_path, with_tests=True)
    sandbox = counted(shop)
    proposal = shop.proposal(shop.change(ORDERS, "", "count * 2.5", "search_replace", "2.5 * count"))

    assert shop.gate.check(proposal, shop.workspace).passed
    assert len(sandbox.commands) == 3  # imports and calls after, tests before, tests after
    shop.workspace.commit(proposal)
    assert shop.gate.check_tree(shop.workspace).passed
    assert len(sandbox.commands) == 5  # with the opposite of what half of the tests expect, twice
    shop.replace("count * 2.5", "count * (5 / 2)")
    assert len(sandbox.commands) == 7  # what was after is before now
    assert not any(folder.exists() for folder in sandbox.folders)


@pytest.mark.slow
def test_the_whole_tree_is_measured_against_the_start(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    proposal = shop.proposal(shop.change(ORDERS, "", "import socket\nimport json", "search_replace", "import json"))
    shop.workspace.commit(proposal)

    report = shop.gate.check_tree(shop.workspace)

    assert code_of(report) == "G3.network"
    assert report.proposal_id == ""


def test_a_protected_file_in_the_tree_is_refused(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.workspace.commit(shop.proposal(shop.change(ORDERS, "", "3.5", "search_replace", "2.5")))
    (tmp_path / "real.py").write_bytes((tmp_path / ORDERS).read_bytes())
    (tmp_path / ORDERS).unlink()
    (tmp_path / ORDERS).symlink_to(tmp_path / "real.py")

    assert code_of(shop.gate.check_tree(shop.workspace)) == "G0.link"


# --- imports ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_external_packages_can_be_allowed(tmp_path: Path) -> None:
    shop = Shop(tmp_path, safety=SafetyConfig(allow_external_dependencies=True))

    assert code_of(shop.replace("import json\n", "import json\nimport no_such_package\n")) == "G5.import"
    assert code_of(shop.replace("import json\n", "import json\nimport subprocess\n")) == "G3.process"


def alone() -> ProjectPowers:
    """A project with nothing around the file, whose package `a` is its own."""
    return ProjectPowers(
        AnalyzedFiles(
            ModuleIndex(root="/", files=(), import_roots=(), roots=()),
            lambda _: None,
            AllowedPackages(frozenset({"a"})),
        )
    )


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("x = 1", "import os\nimport sys\nx = os.sep + sys.version", ""),
        ("import os\nx = os.remove", "import os\nx = os.remove", ""),
        ("import os\nx = os.remove", "import os\nx = os.unlink", "G3.files"),
        ("x = 1", "def f(x):\n    return x.open('r').read()", "G3.read"),
        ("x = 1", "def f(x):\n    return x.open(3)", "G3.files"),
        ("class A: pass", "class A(Exception): pass", "G3.base"),
        ("x = 1", "class A(Exception, total=False): pass", ""),
        ("x = 1", "class A(object):\n    class B(Other): pass", "G3.base"),
        ("x = 1", "class A:\n    @property\n    def x(self): return 1\n    @x.setter\n    def x(self, v): pass", ""),
        ("x = 1", "def f(a):\n    a.b = 1\n    del a.c", "G3.patch"),
        ("x = 1", "class A:\n    b = 1\n    def f(self, a):\n        self.c = 1\n        a.b = 1", ""),
        ("x = 1", "class A:\n    n = 0\n    @classmethod\n    def f(cls): cls.n += 1", ""),
        ("x = 1", "class A:\n    def __init__(self): object.__setattr__(self, 'b', 1)", ""),
        ("x = 1", "class A:\n    def __init__(self, o): object.__setattr__(o, 'b', 1)", "G3.patch"),
        ("x = 1", "import threading\nl = threading.local()\nl.x = 1\nl.x", ""),
        ("x = 1", "from types import SimpleNamespace\nn = SimpleNamespace()\nn.system('a')", "G3.process"),
        ("def g(): pass", "def d(f): return f\n@d\ndef g(): pass", "G3.decorator"),
        ("x = 1", "import os\ndef d(f): os.remove('a')\n@d\ndef g(): pass", "G3.files"),
        ("x = 1", "import json\nclass A(json.JSONEncoder):\n    def default(self, o): return str(o)", ""),
        ("x = 1", "import json\nclass A(json.JSONEncoder):\n    def iterencode(self, o): return o", "G3.base"),
        ("x = 1", "d = {'a': '{x}'}\ndef f(x): return d.get('b', '{x}').format(x=x)", ""),
        ("x = 1", "d = {'a': '{x}'}\ndef f(x, y): return d.get('b', y).format(x=x)", "G3.reflection"),
        ("x = 1", "def f(x): return '{x.name}'.format(x=x)", "G3.reflection"),
        ("x = 1", "from operator import attrgetter\nf = attrgetter('name')", ""),
        ("x = 1", "from operator import methodcaller as m\nf = m('strip', ' ')", ""),
        ("x = 1", "import operator\nf = operator.methodcaller('unlink')", "G3.files"),
        ("x = 1", "from operator import attrgetter\nf = attrgetter('a.__class__')", "G3.reflection"),
        ("x = 1", "from operator import attrgetter\nf = map(attrgetter, ['a'])", "G3.reflection"),
        ("IS_ARBITER = True", "IS_ARBITER = True\ny = 1", ""),
        ("IS_ARBITER = True", "IS_ARBITER = 1", "G3.arbiter"),
        ("x = 1", "del SYSTEM_PROMPT", "G3.prompt"),
        ("x = 1  # noqa", "y = 1  # noqa", ""),
        ("x = 1  # noqa", "x = 1  # noqa: E501", "G3.suppression"),
        ("x = 'https://a.b'", "x = 'https://a.b/c'", "G3.url"),
        ("x = 1", "password = 'change me please'", ""),
        ("x = 1", "größe = 1\nплан = 2", ""),
        ("x = 1", "оrder = 2", "G3.unicode"),  # it begins with a Cyrillic letter
        ("x = 1", "рау = 2", "G3.unicode"),  # all of it is Cyrillic, and looks Latin
        ("x = 1", "from . import prices\nfrom .prices import y", "G3.import"),
        ("x = 1", "import math\nmath.frexp(1.5)\nmath.nothing", "G3.unknown"),
        ("x = 1", "import statistics\nstatistics.sys", "G3.process"),
        ("x = 1", "import time\ntime.clock_settime(0, 1)", "G3.patch"),
    ],
)
def test_growth_is_what_counts(before: str, after: str, code: str) -> None:
    old, new = (CodeVersion(text.encode(), alone()) for text in (before, after))

    problem = check_growth("f.py", old, new, Powers())

    assert (problem.code if problem else "") == code, problem


@pytest.mark.parametrize(
    ("settings", "pyproject", "minor"),
    [
        (GateConfig(target_python="3.9"), 'requires-python = ">=3.11"', 9),
        (GateConfig(), 'requires-python = ">=3.8,<4"', 8),
        (GateConfig(), 'requires-python = "~=3.10"', 10),
        (GateConfig(), 'requires-python = ">=3.99"', sys.version_info.minor),
        (GateConfig(), "", sys.version_info.minor),
    ],
)
def test_the_oldest_python_comes_from_the_settings_or_the_project(
    tmp_path: Path, settings: GateConfig, pyproject: str, minor: int
) -> None:
    shop = Shop(tmp_path, gate=settings, more={"pyproject.toml": f'[project]\nname = "shop"\n{pyproject}\n'})

    assert shop.gate.minimum_python == minor


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("'\\d'", ""),
        ("x = (", "G2.compile"),
        ("x = 1\0", "G2.compile"),
        ("x = " + "-" * 100_000 + "1", "G2.compile"),
        ("match x:\n    case 1: pass", "G2.version"),
    ],
)
def test_sources_are_compiled_but_not_run(text: str, code: str) -> None:
    problem = check_source("f.py", text.encode(), 8)

    assert (problem.code if problem else "") == code


# --- what cannot be verified -------------------------------------------------------------------

ALLOWED = GateConfig(allow_unverified=True)


@pytest.mark.slow
def test_a_project_that_is_too_large_to_copy_is_refused_unless_that_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_environment, "MAX_FILES", 3)

    refused = Shop(tmp_path / "1", with_tests=True).replace("2.5 * count", "count * 2.5")
    allowed = Shop(tmp_path / "2", with_tests=True, gate=ALLOWED).replace("2.5 * count", "count * 2.5")

    assert code_of(refused) == "G5.unverified"
    assert "more than 3 files" in refused.rungs[-1].message
    assert allowed.passed
    assert [(rung.status, rung.code) for rung in allowed.rungs[5:7]] == [
        ("not_run", "G5.unverified"),
        ("not_run", "G6.unverified"),
    ]
    assert "more than 3 files" in allowed.rungs[6].message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "new", "code", "says"),
    [
        (("true",), "count * 2.5", "", ""),
        (("false",), "count * 2.5", "G6.unverified", "exit status 1"),
        (("grep", "-rq", "2.5 . count", "agents"), "3.5 * count", "G6.tests", "exit status 1"),
        (("sleep", "60"), "count * 2.5", "G6.unverified", "Raise timeout_s"),
        (("sh", "-c", "grep -q '2.5 . count' agents/orders.py || sleep 60"), "3.5 * count", "G6.timeout", "1.5 s"),
    ],
    ids=["passes", "always fails", "fails after", "always slow", "slow after"],
)
def test_any_test_command_is_judged_by_its_exit_status(
    tmp_path: Path, command: tuple[str, ...], new: str, code: str, says: str
) -> None:
    shop = Shop(tmp_path, gate=GateConfig(test_command=command, timeout_s=1.5))

    rung = shop.replace("2.5 * count", new).rungs[6]

    assert rung.rung == "G6"
    assert (rung.code or rung.status.replace("passed", "")) == code
    assert says in rung.message


def orders_with(line: str) -> str:
    from tests.unit.editing.shop_project import ORDERS as TEXT

    return TEXT.replace("CREATED =", f"{line}CREATED =")


@pytest.mark.slow
def test_an_import_that_kills_the_process_is_refused(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    after = (
        tmp_path / ORDERS
    ).read_bytes() + b"\nimport os, sys\nprint('bye', file=sys.stderr, flush=True)\nos._exit(0)\n"

    verdict = shop.gate.trials.check_import(START, TreeState("x", {ORDERS: after}), shop.project)

    assert verdict is not None
    assert "The process ended while importing (exit status 0)." in str(verdict)
    assert "bye" in verdict.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("no-such-program",), "exit status 127"),
        ((sys.executable, "-m", "pytest", "-q", "--no-such-option"), "exit status 4"),
    ],
)
def test_a_command_that_fails_without_the_change_too_is_no_proof(
    tmp_path: Path, command: tuple[str, ...], says: str
) -> None:
    shop = Shop(tmp_path, with_tests=True, gate=GateConfig(test_command=command))

    rung = shop.replace("2.5 * count", "3.5 * count").rungs[6]

    assert (rung.status, rung.code) == ("failed", "G6.unverified")
    assert "Even without the change" in rung.message
    assert says in rung.message


@pytest.mark.slow
def test_tests_that_cannot_be_run_are_no_proof_unless_that_is_allowed(tmp_path: Path) -> None:
    broken = {"tests/test_broken.py": "import package_that_is_not_here\n"}
    refused = Shop(tmp_path / "1", more=broken).replace("2.5 * count", "3.5 * count")
    allowed = Shop(tmp_path / "2", more=broken, gate=ALLOWED).replace("2.5 * count", "3.5 * count")

    assert code_of(refused) == "G6.unverified"
    assert allowed.passed
    assert (allowed.rungs[6].status, allowed.rungs[6].code) == ("not_run", "G6.unverified")


@pytest.mark.slow
@pytest.mark.parametrize("test", ["def test_red():\n    assert False\n", ""])
def test_where_no_test_passed_there_is_nothing_to_break(tmp_path: Path, test: str) -> None:
    shop = Shop(tmp_path, more={"tests/test_red.py": test})

    report = shop.replace("2.5 * count", "3.5 * count")

    assert report.passed
    assert (report.rungs[6].status, report.rungs[6].code) == ("not_run", "")
    assert report.rungs[6].message == "No test passes without the change."


def away(first: str) -> dict[str, str]:
    """An agent in a module that begins so."""
    return {"agents/away.py": f"{first}\nfrom graphbus_core import GraphBusNode\n\n\nclass Away(GraphBusNode): pass\n"}


@pytest.mark.slow
def test_another_module_that_does_not_import_before_and_after_is_no_reason_to_refuse(tmp_path: Path) -> None:
    shop = Shop(tmp_path, more=away("import package_that_is_not_here"))

    rung = shop.replace("2.5 * count", "3.5 * count").rungs[5]
    broken = shop.replace("import json\n", "import json\n1 / 0\n").rungs[5]

    assert rung.status == "passed"
    assert "Even without the change: agents.away does not import: ModuleNotFoundError" in rung.message
    assert broken.code == "G5.import"
    assert "agents.orders" in broken.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "path"), [("import package_that_is_not_here\n", ORDERS), ("import os\nos._exit(3)\n", "")]
)
def test_a_changed_module_that_does_not_import_without_the_change_either_is_not_verified(
    tmp_path: Path, first: str, path: str
) -> None:
    files = {ORDERS: orders_with(first)}

    refused = Shop(tmp_path / "1", more=files).replace("2.5 * count", "3.5 * count")
    allowed = Shop(tmp_path / "2", more=files, gate=ALLOWED).replace("2.5 * count", "3.5 * count")

    assert code_of(refused) == "G5.unverified"
    assert refused.rungs[5].path == path
    assert "Even without the change: " in refused.rungs[5].message
    assert allowed.passed
    assert (allowed.rungs[5].status, allowed.rungs[5].code) == ("not_run", "G5.unverified")


@pytest.mark.slow
def test_agents_that_the_text_does_not_show_may_stay_but_not_change(tmp_path: Path) -> None:
    made = 'Made = type("Made", (GraphBusNode,), {"__module__": __name__})\n'
    shop = Shop(tmp_path, more=away("") | {ORDERS: orders_with(made)})
    other = shop.project.source(ORDERS).data.replace(b'type("Made"', b'type("Mode"')
    dead = shop.project.source(ORDERS).data + b"1 / 0\n"

    assert shop.replace("2.5 * count", "3.5 * count").rungs[5].status == "passed"
    for data, code in ((other, "G5.nodes"), (dead, "G5.import")):
        verdict = shop.gate.trials.check_import(START, TreeState(code, {ORDERS: data}), shop.project)
        assert getattr(verdict, "code", "") == code


@pytest.mark.slow
def test_what_was_wrong_before_is_no_reason_to_refuse(tmp_path: Path) -> None:
    """Findings, notes, an unreadable file and topics that nobody can know stay as they are."""
    text = (
        orders_with("")
        .replace("event.payload['left']", "event.payload['lift']")
        .replace('return {"status"', 'return {"state"')
        .replace(
            "    def describe",
            "    @subscribe(CREATED + str(1))\n    def on_any(self, event): self.publish(str(event), {})\n\n    def describe",
        )
    )
    shop = Shop(tmp_path, more={ORDERS: text, "agents/broken.py": "import graphbus_core\nclass A(GraphBusNode:\n"})
    assert shop.project.errors

    report = shop.replace("event.payload['sku']", "event.payload.get('sku')")

    assert code_of(report) == "", report.failure
    assert [change.method for change in report.schema_changes] == ["/Stock/Low"]


@pytest.mark.slow
def test_a_contract_change_without_schema_is_told_by_the_name_of_the_agent(tmp_path: Path) -> None:
    report = Shop(tmp_path).replace('@depends_on("Inventory")', '@depends_on("Inventory", "Ledger")')

    assert [change.method for change in report.schema_changes] == ["Orders"]


# --- copies ------------------------------------------------------------------------------------


def test_a_copy_leaves_out_what_is_secret_large_or_made(tmp_path: Path) -> None:
    root = tmp_path / "project"
    for path in (
        *("a.py", ".env", ".env.local", "key.pem", ".git/config", ".venv/x.py", "env/pyvenv.cfg", "env/y.py", "a.pyc"),
        *("__pycache__/b.py", "node_modules/c.js", ".graphbus/agents.json", "deep/er/d.txt", "out/x"),
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    (root / "inside").symlink_to("deep")
    (root / "inside.py").symlink_to("a.py")
    (root / "outside").symlink_to(tmp_path)
    (root / "outside.py").symlink_to("../elsewhere.py")
    (root / "absolute.py").symlink_to(root / "a.py")
    tree = trial_environment.TrialTree(str(root), str(root / "out"))

    with tree.copy({"a.py": b"new"}) as folder:
        found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
        assert (folder / "a.py").read_bytes() == b"new"
        (folder / "a.py").write_bytes(b"spoilt")
        (folder / "inside" / "er" / "d.txt").write_bytes(b"spoilt")
    with tree.copy({}) as again:
        assert (again / "a.py").read_text() == "a.py"
        assert (again / "deep/er/d.txt").read_text() == "deep/er/d.txt"

    assert not folder.exists()
    assert found == ["a.py", "deep", "deep/er", "deep/er/d.txt", "inside", "inside.py"]


def test_copies_go_with_the_gate(tmp_path: Path) -> None:
    tree = trial_environment.TrialTree(str(tmp_path), str(tmp_path / ".graphbus"))
    with tree.copy({}) as folder:
        home = folder.parent
    del tree

    assert not home.exists()


# --- the register ------------------------------------------------------------------------------


def test_the_documentation_lists_every_code_with_its_meaning() -> None:
    page = (Path(__file__).parents[3] / "docs" / "gate.md").read_text()
    listed = dict(re.findall(r"^\| `(G\d\.[a-z-]+)` \| (.*) \|$", page, re.MULTILINE))

    assert listed == CODES
