"""Two collections of edits on realistic projects: bad ones, none of which may pass the gate, and good ones, all of which must.

One entry of `bad_edits/*.txt` or `good_edits/*.txt`:

    === name-of-the-edit
    tries: what it is up to, in a few words
    refused: G3.process              (bad edits only: the code, or the rung)
    file: agents/order_processor.py  (else the project's first file)
    --- body                         lines for the start of the project's main method
    --- top                          lines for after the imports
    --- old / --- new                a search and its replacement
    --- symbol Class.method          the new definition (also: add, delete, argument, imports)

The head of a file of entries names the project for all of them; `<U+202E>` stands for a character that is not seen.
Further keys of an entry: `src`, `dst`, `affects`, `contract` (what it declares), `link` (a path that is a link), `timeout`, `old`
and `base` (what an edit claims).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from textwrap import dedent, indent
from typing import NamedTuple

from msgspec.structs import replace

from graphbus_core.editing.edits import symbol_text
from graphbus_core.model.config import GateConfig, ResolvedBuild, SafetyConfig, Settings
from graphbus_core.model.proposals import CodeChange, Operation, Proposal, SchemaChange
from tests.project_files import NO_PLUGINS

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
_CHARACTER = re.compile(r"<U\+([0-9A-F]{4,6})>")
_SKIPPED = {"__pycache__", ".graphbus", ".pytest_cache"}
_OPERATIONS: dict[str, Operation] = {
    "symbol": "replace_symbol",
    "add": "add_symbol",
    "delete": "delete_symbol",
    "argument": "set_decorator_argument",
    "imports": "add_import",
}


class Base(NamedTuple):
    """A project that edits are made for.

    Attributes:
        folder: Below the repository.
        agents: What is built of it.
        src: Who proposes, unless an entry says otherwise.
        file: Where its main method is, whose first line is
        body: this one.
        top: The last import of that file.
        names: All agents.
    """

    folder: str
    agents: str
    src: str
    file: str
    body: str
    top: str
    names: tuple[str, ...]


BASES: dict[str, Base] = {
    "shop": Base(
        folder="examples/shop",
        agents="agents",
        src="OrderProcessor",
        file="agents/order_processor.py",
        body='        total = sum(item["price"] * item["qty"] for item in items)\n',
        top="from graphbus_core import Event, GraphBusNode, depends_on, publishes, schema_method, subscribe\n",
        names=("OrderProcessor", "InventoryService", "NotificationService", "AccountsService", "ArbiterService"),
    ),
    "news": Base(
        folder="examples/news",
        agents="news/agents",
        src="Deduplicator",
        file="news/agents/deduplicator.py",
        body="        known = self._find(article)\n",
        top="from news.articles import ACCEPTED, DUPLICATE, FETCHED, Article\n",
        names=("FeedReader", "Deduplicator", "Classifier", "DigestWriter", "EditorInChief"),
    ),
    "chat": Base(
        folder="tests/projects/clean_chat",
        agents="agents",
        src="Room",
        file="agents/rooms.py",
        body='        wanted = filter.get("role")\n',
        top="from . import wire\n",
        names=("Room", "History", "Bot"),
    ),
    "sensors": Base(
        folder="tests/projects/clean_sensors",
        agents="agents",
        src="Sensor",
        file="agents/sensors.py",
        body="        readings = []\n",
        top="from graphbus_core import GraphBusNode, depends_on, publishes, schema_method, subscribe\n",
        names=("Sensor", "Humidity", "Watch", "Switch", "Recorder"),
    ),
    "newsroom": Base(
        folder="tests/projects/clean_newsroom",
        agents="agents",
        src="Collector",
        file="agents/newsroom.py",
        body="        count = 0\n",
        top="from graphbus_core import Event, GraphBusNode, depends_on, schema_method, subscribe\n",
        names=("Collector", "Cleaner", "Ranker", "Editor", "Printer"),
    ),
    "store": Base(
        folder="tests/projects/clean_shop",
        agents="agents",
        src="Orders",
        file="agents/orders.py",
        body="        try:\n            total = self._total(items) * (1 - discount)\n",
        top="from agents.contracts import Confirmed, Item, Topics\n",
        names=("Orders", "Inventory", "Mailing", "Judge", "BaseAudited"),
    ),
    "granary": Base(
        folder="tests/projects/clean_granary",
        agents="agents",
        src="Elevator",
        file="agents/elevator.py",
        body='        answer = self.call("Silo", "store", grain=grain, kg=kg)\n',
        top="from lib import units\n",
        names=("Elevator", "Silo", "Office", "Foreman", "BaseReporting"),
    ),
    "harbour": Base(
        folder="tests/projects/clean_harbour",
        agents="agents",
        src="HarbourMaster",
        file="agents/master.py",
        body='        if not is_call_sign(ship["call_sign"]):\n',
        top="from graphbus_core import Event, GraphBusNode, depends_on, publishes, schema_method, subscribe\n",
        names=("HarbourMaster", "Tugs", "Cashier", "Logbook"),
    ),
}


class _Edit(NamedTuple):
    name: str
    group: str
    tries: str
    project: str
    proposal: Proposal
    refused: str
    links: tuple[str, ...]
    timeout_s: float


class BadEdit(_Edit):
    """An edit that must be refused.

    Attributes:
        name: Unique.
        group: The file of the collection that it stands in; those of one file go the same way.
        tries: What it is up to.
        project: A key of `BASES`.
        proposal: Names every agent in `affects`, unless that is what it gets wrong.
        refused: The code of the gate, `"G3.process"`, or only its rung where several codes are right.
        links: Files of the project that are links.
        timeout_s: How long the gate waits for it.
    """

    @property
    def is_hostile(self) -> bool:
        """One of the many that are refused for their text, up to G3; tests/unit/editing/test_gate_corpora.py tries them all."""
        return self.group.startswith("g3_") and self.refused < "G4"


class GoodEdit(_Edit):
    """An edit that must pass; `refused` is empty."""


@cache
def project_files(project: str) -> dict[str, bytes]:
    """Give the files of a base: relative path -> bytes."""
    folder = REPOSITORY / BASES[project].folder
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and _SKIPPED.isdisjoint(path.parts)]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def write(edit: BadEdit | GoodEdit, folder: Path) -> Path:
    """Write the project of an edit below a folder, and give its root."""
    files = project_files(edit.project)
    for name, data in {"pyproject.toml": b'[project]\nname = "base"\n', **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_without_plugins(data) if name == "pyproject.toml" else data)
    for name in edit.links:
        (folder / "elsewhere").mkdir(exist_ok=True)
        real = (folder / name).rename(folder / "elsewhere" / Path(name).name)
        (folder / name).symlink_to(real)
    return folder


def _without_plugins(data: bytes) -> bytes:
    option = f'"{NO_PLUGINS}"'.encode()
    if b"addopts = [" in data:
        return data.replace(b"addopts = [", b"addopts = [" + option + b", ")
    section = b"[tool.pytest.ini_options]\n"
    before, _, after = data.partition(section)
    return before + b"\n" + section + b"addopts = " + option + b"\n" + after


def config_of(edit: BadEdit | GoodEdit, root: Path) -> ResolvedBuild:
    """Give the configuration of a written project: that of the example, and limits that are soon reached."""
    from graphbus_core import settings

    found = settings.load(root)
    gate = GateConfig(timeout_s=edit.timeout_s, max_changed_lines=80, max_file_size_bytes=20_000, memory_mb=1024)
    safety = SafetyConfig(protected_files=("agents/accounts.py", "Editor_In_Chief.py"))
    chosen = Settings(
        external_topics=found.external_topics, gate=gate, safety=safety if edit.refused else SafetyConfig()
    )
    return ResolvedBuild(root=str(root), paths=(str(root / BASES[edit.project].agents),), settings=chosen)


def bad_edits() -> list[BadEdit]:
    """Give every edit that must be refused, in the order of the rungs."""
    return sorted((BadEdit(*edit) for edit in _read("bad_edits")), key=lambda edit: (edit.refused, edit.name))


def good_edits() -> list[GoodEdit]:
    """Give every edit that must pass."""
    return [GoodEdit(*edit) for edit in _read("good_edits")]


def _read(kind: str) -> Iterator[_Edit]:
    for path in sorted((HERE / kind).glob("*.txt")):
        head, *entries = re.split(r"^=== ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        common = _keys(head.splitlines())
        for entry in entries:
            name, _, rest = entry.partition("\n")
            yield _edit(name.strip(), path.stem, common, _CHARACTER.sub(lambda found: chr(int(found[1], 16)), rest))


def _keys(lines: list[str]) -> dict[str, str]:
    return {key: value.removeprefix(" ") for key, mark, value in (line.partition(":") for line in lines) if mark}


def _edit(name: str, group: str, common: Mapping[str, str], text: str) -> _Edit:
    head, *sections = re.split(r"^--- ?", text, flags=re.MULTILINE)
    keys = {**common, **_keys(head.splitlines())}
    project = keys["project"]
    base = BASES[project]
    src = keys.get("src", base.src)
    affects = keys["affects"].split() if "affects" in keys else [other for other in base.names if other != src]
    proposal = Proposal(
        proposal_id="P001",
        round=0,
        src=src,
        intent=keys.get("intent", "improve"),
        title=name.replace("-", " "),
        reason=keys["tries"],
        dst=keys.get("dst"),
        affects=tuple(affects),
    ).with_changes(
        tuple(_changes(sections, keys, project)),
        [SchemaChange(method=name) for name in keys.get("contract", "").split()],
    )
    links = tuple(keys.get("link", "").split())
    timeout_s = float(keys.get("timeout", 40))
    return _Edit(name, group, keys["tries"], project, proposal, keys.get("refused", ""), links, timeout_s)


def _changes(sections: list[str], keys: Mapping[str, str], project: str) -> Iterator[CodeChange]:
    base, file, old = BASES[project], keys.get("file", BASES[project].file), ""
    for section in sections:
        title, _, text = section.partition("\n")
        kind, _, target = title.strip().partition(" ")
        if kind == "file":
            file = target
        elif kind == "old":
            old = text.rstrip("\n")
        elif kind == "new":
            yield _search(file, *_lines(project, file, old, text.rstrip("\n")), keys)
        elif kind == "body":
            margin = base.body[: len(base.body) - len(base.body.lstrip())]
            yield _search(file, base.body, indent(dedent(text).rstrip("\n"), margin) + "\n" + base.body, keys)
        elif kind == "top":
            yield _search(file, base.top, f"{base.top}{text.rstrip(chr(10))}\n", keys)
        else:
            yield _symbol(
                CodeChange(
                    file_path=file,
                    target=target,
                    change_type="modify",
                    operation=_OPERATIONS[kind],
                    new_code=text.rstrip("\n"),
                    base_sha256=keys.get("base", ""),
                ),
                keys.get("old"),
                project,
            )


def _lines(project: str, file: str, old: str, new: str) -> tuple[str, str]:
    """Give whole lines with their ends; what is quoted from the middle of a line has none."""
    if f"{old}\n".encode() not in project_files(project).get(file, b""):
        return old, new
    return f"{old}\n", f"{new}\n" if new.strip() else ""


def _search(file: str, old: str, new: str, keys: Mapping[str, str]) -> CodeChange:
    return CodeChange(
        file_path=file,
        target="",
        change_type="modify",
        operation="search_replace",
        old_code=old,
        new_code=new,
        base_sha256=keys.get("base", ""),
    )


def _symbol(change: CodeChange, quoted: str | None, project: str) -> CodeChange:
    """Quote the present text of a symbol, unless the entry claims another one."""
    if quoted is None:
        is_new = change.operation in ("add_symbol", "add_import")
        quoted = "" if is_new else symbol_text(project_files(project)[change.file_path], change.target)
    return replace(change, old_code=quoted)
