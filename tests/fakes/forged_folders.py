"""Folders that a hostile clone may bring: each entry of FORGED makes one in a project, beside what nobody may write to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec

from graphbus_core.cli import main
from graphbus_core.compiler.project import Project
from graphbus_core.editing.journal import COMMITTING, PREPARING, Journal, JournalEntry, _EntryKind
from graphbus_core.llm.recorded import Tape
from graphbus_core.model.config import BuildConfig, ResolvedBuild
from graphbus_core.model.proposals import FileChange
from graphbus_core.negotiation.agents import ActiveAgents
from graphbus_core.negotiation.sessions import SessionFolder, load_start
from graphbus_core.settings import resolve_build
from graphbus_core.store.cache import seal_of
from graphbus_core.store.stamps import take_statuses
from graphbus_core.store.writing import encode_artifact

SOURCE = """from graphbus_core import GraphBusNode, schema_method


class Farm(GraphBusNode):
    @schema_method(input_schema={"rye": int}, output_schema={"ok": bool})
    def sow(self, rye: int) -> dict[str, object]:
        return {"ok": rye > 0}
"""
BROKEN = SOURCE.replace("def sow(self, rye: int)", "def sow(self, rye: int").encode()
SENTINEL = b"what lies outside of the project\n"
OUTSIDE = ("secret.py", "secret.json", "state.sqlite3", ".a.py.graphbus-new", "deep/secret.py", "deep/journal.json")
FOLDERS = ("", "cache", "journal", "sessions", "state", "sessions/S001", "state/deep")
FILES = (
    *("manifest.json", "graph.json", "agents.json", ".graph.json.tmp", ".manifest.json.tmp", "negotiation.lock"),
    *(
        "lock",
        "negotiating",
        "cache/facts",
        "cache/build",
        "cache/imports",
        "state/state.sqlite3",
        "state/state.sqlite3-wal",
    ),
    *(
        "state/dead_letters.sqlite3",
        "state/trace.jsonl",
        "state/profile.json",
        "state/http_token",
        "state/prompt_history",
    ),
    *(
        "sessions/S001/record.json",
        "sessions/S001/session.json",
        "sessions/S001/answers.jsonl",
        "sessions/S001/commits.json",
    ),
)
PATHS = {
    "an absolute path": "{outside}/secret.py",
    "a path upwards": "../outside/secret.py",
    "a path down and upwards": "agents/../../outside/secret.py",
    "a link": "agents/link.py",
    "a link on the way": "linked/secret.py",
    "settings": "pyproject.toml",
    "a test": "tests/test_farm.py",
    "the lock": ".graphbus/negotiation.lock",
    "an agent": "agents/farm.py",
}


class Clone:
    """A project from elsewhere, in a folder of its own beside `outside`."""

    def __init__(self, place: Path) -> None:
        self.root, self.outside, self.place = place / "clone", place / "outside", place
        self.home = self.root / ".graphbus"
        for path in OUTSIDE:
            write(self.outside / path, SENTINEL)
        write(self.root / "pyproject.toml", b"[tool.graphbus]\nexclude = ['agents/link.py', 'linked', 'tests']\n")
        write(self.root / "tests/test_farm.py", b"x = 1\n")
        write(self.root / "agents/farm.py", SOURCE.encode())
        (self.root / "agents/link.py").symlink_to(self.outside / "secret.py")
        (self.root / "linked").symlink_to(self.outside)

    @property
    def config(self) -> ResolvedBuild:
        return ResolvedBuild(root=str(self.root), paths=(f"{self.root}/agents",))


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@contextmanager
def somebody_else(clone: Clone) -> Iterator[None]:
    """Have the key of another user for a moment."""
    mine = os.environ["XDG_STATE_HOME"]
    os.environ["XDG_STATE_HOME"] = str(clone.place / "theirs")
    try:
        yield
    finally:
        os.environ["XDG_STATE_HOME"] = mine


def digest(data: bytes) -> str:
    return sha256(data).hexdigest()


# --- journals -------------------------------------------------------------------------------


def entry_of(path: str, kind: _EntryKind = "promote", number: int = 1) -> JournalEntry:
    """One that finds what is there as its new text, and would bring `b"forged"` back."""
    now = SOURCE.encode() if path.endswith("farm.py") and "test" not in path else SENTINEL
    file = FileChange(path=path, sha256_before=digest(b"forged\n"), sha256_after=digest(now))
    other = FileChange(path="agents/none.py", sha256_before=digest(b"1"), sha256_after=digest(b"2"))
    return JournalEntry(number=number, session=f"S00{number}", kind=kind, files=(file, other))


def begin(clone: Clone, entry: JournalEntry) -> Path:
    contents = {file.path: (b"1" if "none" in file.path else b"forged\n", SENTINEL) for file in entry.files}
    return Journal(clone.config).begin(entry, contents)


def journal(path: str, state: str, seal: str, clone: Clone) -> None:
    entry = entry_of(path.format(outside=clone.outside))
    if state == "":
        entry = msgspec.structs.replace(entry, files=entry.files[:1])
    with somebody_else(clone):
        folder = begin(clone, entry)
        renamed = Journal(clone.config).set_state(folder, state)
    if seal == "none":
        (renamed / "seal").unlink()
    elif seal == "nonsense":
        (renamed / "seal").write_bytes(b"\xff" * 64)


def of_another_project(clone: Clone) -> None:
    """My own seal, for my own other project."""
    other = ResolvedBuild(root=str(clone.place / "mine"), paths=())
    made = Journal(other).begin(
        entry_of("agents/farm.py"), {"agents/farm.py": (b"forged\n", b""), "agents/none.py": (b"", b"")}
    )
    shutil.copytree(Journal(other).set_state(made, COMMITTING), clone.home / "journal" / "0001-S001.committing")


def with_my_seal(change: Callable[[Path], object], clone: Clone) -> None:
    """An entry that I have written here, changed afterwards."""
    folder = Journal(clone.config).set_state(begin(clone, entry_of("agents/farm.py")), COMMITTING)
    change(folder)


def seal_of_another_entry(folder: Path) -> None:
    path = folder / "journal.json"
    path.write_bytes(path.read_bytes().replace(b"agents/none.py", b"agents/farm.py"))


def other_bytes(folder: Path) -> None:
    (folder / "before/0").write_bytes(b"others\n")


def swapped_bytes(folder: Path) -> None:
    (folder / "before/0").rename(folder / "x")
    (folder / "before/1").rename(folder / "before/0")
    (folder / "x").rename(folder / "before/1")


def renamed(folder: Path) -> None:
    folder.rename(folder.with_name("0007-S007.committing"))


def instead(kind: str, name: str, clone: Clone) -> None:
    """Put something else in the place of a file of a journal."""
    journal("agents/farm.py", COMMITTING, "theirs", clone)
    path = clone.home / "journal/0001-S001.committing" / name
    path.unlink()
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    elif kind == "a link":
        path.symlink_to(clone.outside / "secret.json")
    else:
        path.write_bytes(b'{"number": 1, "files": [' + b"[" * 2_000_000)


def odd_name(name: str, clone: Clone) -> None:
    write(clone.home / "journal" / name / "journal.json", b"{}")


def linked_journal(clone: Clone) -> None:
    """The whole folder, whole and well made, outside."""
    with somebody_else(clone):
        Journal(clone.config).set_state(begin(clone, entry_of("../outside/secret.py")), COMMITTING)
    (clone.home / "journal").rename(clone.outside / "journal")
    (clone.home / "journal").symlink_to(clone.outside / "journal")


# --- caches ---------------------------------------------------------------------------------


def cache(name: str, how: str, clone: Clone) -> None:
    """What a check and a build have kept of good sources, brought to fit sources that are broken: to the digest and the inode."""
    with somebody_else(clone) if how == "theirs" else nullcontext():
        for command in (["check"], ["build", "agents"]):
            main(["-C", str(clone.root), *command])
        agent = clone.root / "agents/farm.py"
        agent.write_bytes(BROKEN)
        path = clone.home / "cache" / name
        data = path.read_bytes() if path.exists() else b"x" * 200
        body = msgspec.msgpack.decode(data[64:]) if path.exists() else []
        forged = msgspec.msgpack.encode(
            _with_status(body, take_statuses(str(clone.root), ["agents/farm.py"]).files["agents/farm.py"])
        )
        if how == "theirs":
            forged = seal_of("cache", str(path), forged).encode() + forged
        elif how == "my old seal":
            forged = data[:64] + forged
        elif how == "zeros":
            forged = b"0" * 64 + forged
    write(path, forged)


def _with_status(value: object, status: tuple[int, ...]) -> object:
    """Say of agents/farm.py wherever a fingerprint speaks of it that it is as it is now, and has been for long."""
    if isinstance(value, list):
        return [_with_status(each, status) for each in value]
    if isinstance(value, dict):
        return {
            key: _planted(each, status) if key == "agents/farm.py" else _with_status(each, status)
            for key, each in value.items()
        }
    if isinstance(value, str):
        return value.replace(digest(SOURCE.encode()), digest(BROKEN))
    return 2**62 if isinstance(value, int) and value > 10**18 else value


def _planted(value: object, status: tuple[int, ...]) -> object:
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], str):
        return [list(status), digest(BROKEN)]
    return _with_status(value, status)


# --- links ----------------------------------------------------------------------------------


def linked_folder(name: str, clone: Clone) -> None:
    path = clone.home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.rmdir() if path.is_dir() else None
    path.symlink_to(clone.outside)


def linked_file(name: str, clone: Clone) -> None:
    path = clone.home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(clone.outside / ("state.sqlite3" if "sqlite" in name else "secret.json"))


def hard_link(name: str, clone: Clone) -> None:
    path = clone.home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    os.link(clone.outside / "secret.json", path)


def endless(name: str, clone: Clone) -> None:
    path = clone.home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("/dev/zero")


# --- sessions and the lock --------------------------------------------------------------------


def record_of(name: str, clone: Clone) -> None:
    data = (
        b'{"schema_version": 1, "session": "%s", "backend": "rules", "agents": [], "arbiters": [], "intent": "",'
        % name.encode()
    )
    ending = b'"negotiations": {"session": "%s"}}' % name.encode()
    write(clone.home / "sessions/S001/record.json", data + ending)


def commits_of(identity: str, clone: Clone) -> None:
    record_of("S001", clone)
    write(
        clone.home / "sessions/S001/commits.json",
        b'{"branch": "", "before": "", "commits": {"P1": "%s"}}' % identity.encode(),
    )


def session_of_somebody(how: str, clone: Clone) -> None:
    """A session that was killed and waits to be resumed, with settings that would start a program of its own."""
    config = resolve_build(BuildConfig(paths=(str(clone.root / "agents"),), enable_agents=True, model="rules"))
    project = Project.read(config, cache=False)
    with somebody_else(clone) if how == "theirs" else nullcontext():
        SessionFolder(config).begin(ActiveAgents(), project, Tape(), {})
    folder = clone.home / "sessions/S001"
    start = load_start(clone.home, "S001")
    gate = msgspec.structs.replace(
        start.settings.gate, test_command=(f"touch {clone.outside}/ran"), isolation="process"
    )
    if how != "theirs":
        start = msgspec.structs.replace(start, settings=msgspec.structs.replace(start.settings, gate=gate))
        (folder / "session.json").write_bytes(encode_artifact(start))


def odd_session(name: str, clone: Clone) -> None:
    write(clone.home / "sessions" / name / "record.json", b"{}")


def lock_of(text: bytes, clone: Clone) -> None:
    write(clone.home / "negotiation.lock", text)


def _table() -> Mapping[str, Callable[[Clone], None]]:
    made: dict[str, Callable[[Clone], None]] = {}
    for what, path in PATHS.items():
        for seal in ("none", "theirs"):
            made[f"a journal that would write {what}, seal: {seal}"] = partial(journal, path, COMMITTING, seal)
        made[f"a journal that would clear up beside {what}"] = partial(journal, path, PREPARING, "nonsense")
        made[f"a journal that would undo {what}"] = partial(journal, path, "", "theirs")
    made["a journal of my other project"] = of_another_project
    for change in (seal_of_another_entry, other_bytes, swapped_bytes, renamed):
        made[f"my own journal, {change.__name__}"] = partial(with_my_seal, change)
    for kind in ("a pipe", "a folder", "a device", "a link", "a huge document"):
        made[f"{kind} as journal.json"] = partial(instead, kind, "journal.json")
    made |= {f"{kind} as seal": partial(instead, kind, "seal") for kind in ("a pipe", "a device", "a link")}
    made |= {
        f"a journal called {name!r}": partial(odd_name, name)
        for name in ("1x", "0-", "9" * 200 + "-S.committing", "0001-S..x")
    }
    made["a journal that is a link to a whole one"] = linked_journal
    for name in ("facts", "build", "imports"):
        made |= {
            f"the cache {name}, seal: {how}": partial(cache, name, how)
            for how in ("theirs", "none", "my old seal", "zeros")
        }
    made |= {f"a link at the folder .graphbus/{name}": partial(linked_folder, name) for name in FOLDERS}
    made |= {f"a link at .graphbus/{name}": partial(linked_file, name) for name in FILES}
    for name in (
        "lock",
        "negotiating",
        "state/state.sqlite3",
        "sessions/S001/answers.jsonl",
        "negotiation.lock",
        "manifest.json",
    ):
        made[f"a second name at .graphbus/{name}"] = partial(hard_link, name)
    for name in ("negotiation.lock", "manifest.json", "graph.json", "cache/facts", "sessions/S001/record.json"):
        made[f"/dev/zero at .graphbus/{name}"] = partial(endless, name)
    made |= {f"a record of {name!r}": partial(record_of, name) for name in ("../../outside/x", "/tmp/x", "S001")}
    made |= {f"commits of {each!r}": partial(commits_of, each) for each in ("--output=x", "HEAD; touch x", "../x")}
    made |= {f"a killed session, {how}": partial(session_of_somebody, how) for how in ("theirs", "mine but changed")}
    made |= {f"a session called {name!r}": partial(odd_session, name) for name in ("S001 x", "..S", "-rf", "S001\n")}
    made |= {
        f"a lock of {text[:20]!r}": partial(lock_of, text)
        for text in (b"{", b"[" * 1_000_000, b'{"schema_version": 1, "agents": {}}')
    }
    return made


FORGED = _table()
