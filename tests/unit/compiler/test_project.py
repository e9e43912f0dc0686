"""A project: what it knows of its files, what a change of some files makes of it, and what it keeps between readings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphbus_core.compiler import project as reading
from graphbus_core.compiler.project import Project
from graphbus_core.compiler.reading import facts
from graphbus_core.compiler.reading.syntax import ModuleSource
from graphbus_core.errors import BuildError
from tests.patience import PATIENCE_S
from tests.project_files import write_project
from tests.reading import HEAD, read_folder

SHOP = {
    "kit/base.py": HEAD + "class BaseAgent(GraphBusNode):\n    PREFIX = '/Shop'\n",
    "kit/names.py": "STOCK = '/Stock'\n",
    "agents/order.py": "from kit.base import BaseAgent\nfrom graphbus_core import subscribe\nfrom kit.names import STOCK\n"
    "class Order(BaseAgent):\n    @subscribe(STOCK)\n    def on_stock(self, event): return event['sku']\n",
    "agents/stock.py": HEAD + "from kit import names\nclass Stock(GraphBusNode):\n"
    "    def sell(self): self.publish(names.STOCK, {'sku': ''})\n",
    "agents/plain.py": "class Nothing: pass\n",
    "agents/two.py": HEAD + "class B(GraphBusNode): pass\nclass A(GraphBusNode): pass  # graphbus: ignore[GB002]\n",
}


def _same(one: Project, other: Project) -> bool:
    return (
        one.definitions == other.definitions
        and one.order == other.order
        and one.graph.edges == other.graph.edges
        and one.graph.topics == other.graph.topics
        and [str(error) for error in one.errors] == [str(error) for error in other.errors]
        and one.local_findings == other.local_findings
        and one.agent_files == other.agent_files
        and one.inputs == other.inputs
        and one.digests == other.digests
        and [one.ignores(path) for path in one.inputs] == [other.ignores(path) for path in one.inputs]
    )


def _age(root: Path) -> None:
    """Make every file old enough to be trusted without being read."""
    for path in root.rglob("*.py"):
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - 10_000_000_000))


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of all files that are extracted while the test runs."""
    seen: list[str] = []
    extract = facts.FactsReader._extract_facts

    def noted(self: facts.FactsReader, file: facts.ModuleFile) -> facts.FileFacts:
        seen.append(file.path)
        return extract(self, file)

    monkeypatch.setattr(facts.FactsReader, "_extract_facts", noted)
    return seen


def test_what_a_project_knows(tmp_path: Path) -> None:
    project = read_folder(write_project(tmp_path, SHOP), "agents")
    assert [agent.name for agent in project.definitions] == ["A", "B", "Stock", "Order"]
    assert project.definitions == tuple(project.agent(name) for name in project.order.order)
    assert project.agent("Nobody") is None
    assert project.owners("agents/two.py") == ("B", "A")
    assert project.owners("agents/plain.py") == project.owners("nowhere.py") == ()
    assert project.agent_files == ("agents/order.py", "agents/stock.py", "agents/two.py")
    assert project.inputs == (
        *sorted(path for path in SHOP if path.startswith("agents")),
        "kit/base.py",
        "kit/names.py",
    )
    assert project.ignores("agents/two.py") == ((3, ("GB002",)),)
    assert project.source("kit/names.py").text == SHOP["kit/names.py"]
    assert project.source("kit/names.py").module == "kit.names"
    with pytest.raises(BuildError) as caught:
        project.source("nowhere.py")
    assert caught.value.code == "GBE204"


@pytest.mark.parametrize(
    ("changed", "extracted"),
    [
        ({"agents/two.py": HEAD + "class B(GraphBusNode): pass\n"}, ["agents/two.py"]),
        ({"kit/names.py": "STOCK = '/Other'\n"}, ["agents/order.py", "agents/stock.py"]),
        ({"kit/names.py": None}, []),
        ({"kit/base.py": "class BaseAgent: pass\n"}, ["agents/order.py"]),
        ({"agents/plain.py": HEAD + "class New(GraphBusNode): pass\n"}, ["agents/plain.py"]),
        ({"agents/plain.py": "from agents.two import A\nclass Sub(A): pass\n"}, ["agents/plain.py"]),
        ({"agents/plain.py": "class (\n"}, []),
        ({"agents/two.py": "from graphbus_core import (\n"}, ["agents/two.py"]),
        ({"agents/two.py": b"# graphbus_core \xff"}, ["agents/two.py"]),
        ({"agents/new.py": HEAD + "class New(GraphBusNode): pass\n"}, ["agents/new.py"]),
        ({"kit/new.py": "X = 1\n"}, []),
        ({"agents/stock.py": SHOP["agents/stock.py"], "agents/two.py": ""}, []),
    ],
)
def test_changed_bytes_give_the_project_that_a_fresh_reading_gives(
    tmp_path: Path, parsed: list[str], changed: dict[str, str | bytes | None], extracted: list[str]
) -> None:
    root = write_project(tmp_path, SHOP)
    project = read_folder(root, "agents")
    before = project.definitions
    written = {path: SHOP[path] if text is None else text for path, text in changed.items()}
    data = {path: text if isinstance(text, bytes) else text.encode() for path, text in written.items()}
    parsed.clear()
    after = project.with_files(data)
    assert sorted(parsed) == extracted
    assert all(after.source(path).data == content for path, content in data.items())
    assert project.definitions == before
    write_project(root, data)
    assert _same(after, read_folder(root, "agents"))


def test_nothing_is_written_by_trying_changes(tmp_path: Path) -> None:
    root = write_project(tmp_path, SHOP)
    project = read_folder(root, "agents")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    first = project.with_files({"agents/two.py": b""})
    second = first.with_files({"agents/plain.py": b"x = 1"})
    assert (second.source("agents/two.py").data, second.source("agents/plain.py").data) == (b"", b"x = 1")
    assert first.source("agents/plain.py").data == SHOP["agents/plain.py"].encode()
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_a_name_that_turns_up_later_makes_agents_of_files_that_were_passed_over(tmp_path: Path) -> None:
    root = write_project(
        tmp_path, {**SHOP, "agents/sub.py": "from agents.plain import Nothing\nclass Sub(Nothing): pass\n"}
    )
    project = read_folder(root, "agents")
    assert project.agent("Sub") is None
    after = project.with_files({"agents/plain.py": (HEAD + "class Nothing(GraphBusNode): pass\n").encode()})
    assert after.agent("Sub") is not None
    assert after.with_files({"agents/plain.py": b"class Nothing: pass\n"}).agent("Sub") is None


# --- between readings -----------------------------------------------------------------------------


def test_a_second_reading_parses_nothing(tmp_path: Path, parsed: list[str]) -> None:
    root = write_project(tmp_path, SHOP)
    _age(root)
    first = read_folder(root, "agents", cache=True)
    assert sorted(parsed) == ["agents/order.py", "agents/stock.py", "agents/two.py"]
    parsed.clear()
    assert _same(read_folder(root, "agents", cache=True), first)
    assert parsed == []


@pytest.mark.parametrize(
    ("path", "text", "extracted"),
    [
        ("agents/two.py", HEAD + "class B(GraphBusNode): pass\n", ["agents/two.py"]),
        ("kit/names.py", "STOCK = '/Other'\n", ["agents/order.py", "agents/stock.py"]),
        ("agents/new.py", HEAD + "class New(GraphBusNode): pass\n", ["agents/new.py"]),
        ("agents/plain.py", "x = 1\n", []),
    ],
)
def test_after_a_change_only_what_rests_on_it_is_read_again(
    tmp_path: Path, parsed: list[str], path: str, text: str, extracted: list[str]
) -> None:
    root = write_project(tmp_path, SHOP)
    _age(root)
    read_folder(root, "agents", cache=True)
    write_project(root, {path: text})
    parsed.clear()
    cached = read_folder(root, "agents", cache=True)
    assert sorted(parsed) == extracted
    assert _same(cached, read_folder(root, "agents"))


def test_a_file_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    root = write_project(tmp_path, SHOP)
    read_folder(root, "agents", cache=True)
    (root / "agents/two.py").unlink()
    assert _same(read_folder(root, "agents", cache=True), read_folder(root, "agents"))


@pytest.mark.parametrize("damage", [b"", b"\x93\x01\x02", b"nonsense"])
def test_a_damaged_cache_costs_only_time(tmp_path: Path, damage: bytes) -> None:
    root = write_project(tmp_path, SHOP)
    read_folder(root, "agents", cache=True)
    (root / ".graphbus/cache/facts").write_bytes(damage)
    assert _same(read_folder(root, "agents", cache=True), read_folder(root, "agents"))


def test_a_fingerprint_tells_whether_the_project_is_still_the_one_on_disk(tmp_path: Path) -> None:
    root = write_project(tmp_path, SHOP)
    _age(root)
    print_ = read_folder(root, "agents").fingerprint("key")
    paths = [path for path in SHOP if path.startswith("agents")]
    assert print_.is_current(str(root), paths, "key")
    write_project(root, {"kit/names.py": "STOCK = '/Other'\n"})
    assert not print_.is_current(str(root), paths, "key")


@pytest.mark.slow
def test_reading_a_project_loads_nothing_heavy_and_runs_no_user_code(tmp_path: Path) -> None:
    root = write_project(tmp_path, {"agents/a.py": HEAD + "print('ran')\nclass A(GraphBusNode): pass\n"})
    script = (
        "import sys\nfrom graphbus_core import settings\nfrom graphbus_core.compiler.project import Project\n"
        "from graphbus_core.model.config import BuildConfig\n"
        "project = Project.read(settings.resolve_build(BuildConfig(paths=(sys.argv[1],))))\n"
        "heavy = {'networkx', 'rich', 'click', 'asyncio', 'difflib', 'jsonschema'}\n"
        "print(len(project.definitions), sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(root / "agents")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout == "1 []\n"


@pytest.mark.parametrize("place", ["new.py", "rules/new.py", "rules/fixes/new.py", "reading/deeper/new.py"])
def test_what_is_kept_does_not_outlive_a_change_of_the_code_that_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(reading, "__file__", str(tmp_path / "code" / "project.py"))
    code = write_project(tmp_path / "code", {place: "x = 1\n"})
    folder = write_project(tmp_path / "project", {"a.py": HEAD + "class A(GraphBusNode): pass\n"})
    read_folder(folder, cache=True)
    (code / place).write_text("x = 12\n")
    reading._stamp_of.cache_clear()  # as in a process that starts now
    seen: list[bytes] = []
    parse = ModuleSource.parse
    monkeypatch.setattr(ModuleSource, "parse", lambda source: seen.append(source.data) or parse(source))
    read_folder(folder, cache=True)
    assert len(seen) == 1
