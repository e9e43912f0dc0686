"""Promotion, undo and recovery: what is written, what is refused, and what is left as it was."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from graphbus_core.editing.journal import COMMITTING, PREPARING, Journal, Target, is_changeable, unchangeable_error
from graphbus_core.editing.promotion import fate_of, last_session, promote, recover, undo
from graphbus_core.errors import EditError
from graphbus_core.model.config import ResolvedBuild
from graphbus_core.model.proposals import CodeChange, Proposal
from graphbus_core.store.folders import Folder
from tests import thoroughness
from tests.project_files import write_project

CHANGED = {"agents/a.py": (b"a = 1\n", b"a = 2\n"), "agents/b.py": (b"b = 1\r\n", b"b = 2\r\n")}


@pytest.fixture
def config(tmp_path: Path) -> ResolvedBuild:
    (tmp_path / "agents").mkdir()
    for path, (before, _) in CHANGED.items():
        (tmp_path / path).write_bytes(before)
    return ResolvedBuild(root=str(tmp_path), paths=(f"{tmp_path}/agents",))


def now(config: ResolvedBuild) -> dict[str, bytes]:
    return {path: Path(config.root, path).read_bytes() for path in CHANGED}


def before() -> dict[str, bytes]:
    return {path: old for path, (old, _) in CHANGED.items()}


def after() -> dict[str, bytes]:
    return {path: new for path, (_, new) in CHANGED.items()}


def refused(config: ResolvedBuild, code: str) -> EditError:
    """Promotion is refused with this code, and nothing is left of it."""
    names = sorted(os.listdir(f"{config.root}/agents"))
    with pytest.raises(EditError) as caught:
        promote(config, CHANGED, "S001")
    assert caught.value.code == code
    assert sorted(os.listdir(f"{config.root}/agents")) == names
    assert Journal(config).unfinished() == []
    return caught.value


def test_changed_files_are_written_and_described(config: ResolvedBuild) -> None:
    change = CodeChange(file_path="agents/a.py", target="a", change_type="modify")
    proposals = [
        Proposal(proposal_id="P001", round=0, src="A", intent="x", code_change=change),
        Proposal(proposal_id="P002", round=0, src="A", intent="x", code_change=change),
    ]

    changes = promote(config, CHANGED, "S001", proposals)

    assert now(config) == after()
    assert [change.path for change in changes] == ["agents/a.py", "agents/b.py"]
    assert [change.proposals for change in changes] == [("P001", "P002"), ()]
    assert changes[0].sha256_before != changes[0].sha256_after


def test_permissions_and_owner_stay(config: ResolvedBuild) -> None:
    path = Path(config.root, "agents/a.py")
    path.chmod(0o754)
    if os.getuid() == 0:
        os.chown(path, 1234, 4321)
    was = path.stat()

    promote(config, CHANGED, "S001")

    now = path.stat()
    assert stat.S_IMODE(now.st_mode) == 0o754
    assert (now.st_uid, now.st_gid) == (was.st_uid, was.st_gid)


def test_a_file_that_was_changed_meanwhile_stops_everything(config: ResolvedBuild) -> None:
    Path(config.root, "agents/b.py").write_bytes(b"b = 'mine'\n")

    error = refused(config, "GBE320")

    assert error.where is not None
    assert error.where.path == "agents/b.py"
    assert now(config)["agents/a.py"] == b"a = 1\n"
    assert now(config)["agents/b.py"] == b"b = 'mine'\n"


@pytest.mark.parametrize("link", ["agents/a.py", "agents"])
def test_links_are_refused(config: ResolvedBuild, link: str, tmp_path: Path) -> None:
    real = tmp_path / "real"
    (tmp_path / link).rename(real)
    (tmp_path / link).symlink_to(real)

    refused(config, "GBE322")
    assert now(config) == before()


@pytest.mark.parametrize("path", ["../x.py", "/etc/hosts", "", "agents/../agents/a.py"])
def test_paths_that_leave_the_project_are_refused(config: ResolvedBuild, path: str) -> None:
    with pytest.raises(EditError) as caught:
        promote(config, {path: (b"", b"x")}, "S001")

    assert caught.value.code == "GBE323"


WITHOUT_RIGHTS = """
import fcntl, os, shutil, signal, sys  # what is loaded when it is needed may lie where others may not read
from graphbus_core.editing.promotion import promote
from graphbus_core.errors import EditError
from graphbus_core.model.config import ResolvedBuild
if os.getuid() == 0:  # nothing is forbidden to root
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    promote(ResolvedBuild(root=sys.argv[1], paths=()), eval(sys.argv[2]), "S001")
except EditError as error:
    print(error.code, error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "mode"), [("agents/b.py", 0o444), ("agents", 0o555), (".", 0o555)], ids=["file", "its folder", "project"]
)
def test_what_is_read_only_is_refused_with_one_message(path: str, mode: int) -> None:
    with tempfile.TemporaryDirectory() as folder:  # every user may go there
        config = ResolvedBuild(root=folder, paths=())
        write_project(Path(folder), before())
        for name in (".", "agents", *CHANGED):
            Path(folder, name).chmod(0o777)
        Path(folder, path).chmod(mode)
        command = [sys.executable, "-c", WITHOUT_RIGHTS, folder, repr(CHANGED)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert said.startswith("GBE321 ")
        assert "The path was not changed" in said
        assert now(config) == before()
        assert sorted(os.listdir(f"{folder}/agents")) == ["a.py", "b.py"]
        assert Journal(config).unfinished() == []
        Path(folder, path).chmod(0o777)


@pytest.mark.slow
def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    """Made with a limit on the size of files, which a process meets as it meets the end of a disk."""
    code = """
import os, resource, sys
from pathlib import Path
from graphbus_core.editing.promotion import promote
from graphbus_core.errors import EditError
from graphbus_core.model.config import ResolvedBuild
root = Path(sys.argv[1])
(root / "agents").mkdir()
(root / "agents/0.py").write_bytes(b"x = 1\\n")
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
for attempt in range(2):
    try:
        promote(ResolvedBuild(root=str(root), paths=()), {"agents/0.py": (b"x = 1\\n", b"x = 2\\n" * 9000)}, "S001")
    except EditError as error:
        print(error.code, error.sentence)
    print((root / "agents/0.py").read_bytes() == b"x = 1\\n", os.listdir(root / "agents") == ["0.py"],
          len(os.listdir(root / ".graphbus/journal")))
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["GBE321 This path cannot be written: file too large.", "True True 0"] * 2


def test_two_processes_never_promote_at_once(config: ResolvedBuild) -> None:
    with Journal(config).locked():  # a lock of the file, whichever process has opened it
        refused(config, "GBE324")
        assert recover(config) == ()
    promote(config, CHANGED, "S001")
    assert now(config) == after()


# --- undo ----------------------------------------------------------------------------------


def test_undo_restores_the_bytes_of_before_and_the_journal_knows_what_became_of_a_session(
    config: ResolvedBuild,
) -> None:
    assert fate_of(config, "S001") == ""
    promote(config, CHANGED, "S001")
    assert fate_of(config, "S001") == "written"
    assert len(undo(config, dry_run=True)) == 2
    assert now(config) == after()
    assert [file.path for file in undo(config)] == ["agents/a.py", "agents/b.py"]
    assert now(config) == before()
    assert fate_of(config, "S001") == "undone"


def test_sessions_are_undone_from_the_last_to_the_first(config: ResolvedBuild) -> None:
    promote(config, {"agents/a.py": (b"a = 1\n", b"a = 2\n")}, "S001")
    promote(config, {"agents/a.py": (b"a = 2\n", b"a = 3\n")}, "S002")

    with pytest.raises(EditError) as caught:
        undo(config, "S001")
    assert caught.value.code == "GBE326"
    assert last_session(config) == "S002"
    undo(config)
    assert last_session(config) == "S001"
    undo(config)

    assert now(config)["agents/a.py"] == b"a = 1\n"
    with pytest.raises(EditError) as caught:
        undo(config)
    assert caught.value.code == "GBE327"


def test_undo_refuses_when_a_file_was_changed_since_and_names_all_of_them(config: ResolvedBuild) -> None:
    promote(config, CHANGED, "S001")
    Path(config.root, "agents/a.py").write_bytes(b"a = 'mine'\n")
    Path(config.root, "agents/b.py").unlink()

    with pytest.raises(EditError) as caught:
        undo(config)

    assert caught.value.code == "GBE326"
    assert "agents/a.py, agents/b.py" in caught.value.sentence
    assert Path(config.root, "agents/a.py").read_bytes() == b"a = 'mine'\n"


@pytest.mark.parametrize("session", ["", "S009"])
def test_there_may_be_nothing_to_undo(config: ResolvedBuild, session: str) -> None:
    with pytest.raises(EditError) as caught:
        undo(config, session)
    assert caught.value.code == "GBE327"

    promote(config, CHANGED, "S001")
    with pytest.raises(EditError) as caught:
        undo(config, "S009")
    assert "S001" in caught.value.hint


# --- recovery --------------------------------------------------------------------------------


def interrupted(config: ResolvedBuild, state: str) -> Path:
    """A promotion that was done, with its journal set back to an earlier state."""
    promote(config, CHANGED, "S.1/x")
    folder = Path(config.artifacts_dir, "journal", "0001-S_1_x")
    return folder.rename(folder.with_name(folder.name + state))


def test_when_all_files_are_new_the_promotion_is_completed(config: ResolvedBuild) -> None:
    interrupted(config, COMMITTING)

    (recovered,) = recover(config)

    assert recovered.is_completed
    assert now(config) == after()
    assert last_session(config) == "S.1/x"


def test_when_one_file_is_old_the_others_are_taken_back(config: ResolvedBuild) -> None:
    interrupted(config, COMMITTING)
    Path(config.root, "agents/b.py").write_bytes(b"b = 1\r\n")

    (recovered,) = recover(config)

    assert not recovered.is_completed
    assert now(config) == before()
    assert Journal(config).done() == []


def test_a_file_that_was_changed_after_the_interruption_is_left_alone(config: ResolvedBuild) -> None:
    interrupted(config, COMMITTING)
    Path(config.root, "agents/b.py").write_bytes(b"b = 'mine'\n")

    with pytest.raises(EditError) as caught:
        recover(config)

    assert caught.value.code == "GBE325"
    assert "agents/b.py" in str(caught.value)
    assert now(config) == {"agents/a.py": b"a = 2\n", "agents/b.py": b"b = 'mine'\n"}


def test_a_file_changed_before_its_turn_does_not_hinder_the_recovery_of_the_others(config: ResolvedBuild) -> None:
    """Its temporary file is still there: it was never replaced."""
    interrupted(config, COMMITTING)
    Path(config.root, "agents/b.py").write_bytes(b"b = 'mine'\n")
    Path(config.root, "agents/.b.py.graphbus-new").write_bytes(b"b = 2\r\n")

    recover(config)

    assert now(config) == {"agents/a.py": b"a = 1\n", "agents/b.py": b"b = 'mine'\n"}
    assert sorted(os.listdir(f"{config.root}/agents")) == ["a.py", "b.py"]


@pytest.mark.parametrize("state", [PREPARING, COMMITTING])
@pytest.mark.parametrize("damage", [b"", b'{"number": "x"}'])
def test_a_damaged_entry_is_reported(config: ResolvedBuild, damage: bytes, state: str) -> None:
    folder = interrupted(config, state)
    (folder / "journal.json").write_bytes(damage)

    for action in (recover, lambda config: promote(config, CHANGED, "S002")):
        with pytest.raises(EditError) as caught:
            action(config)
        assert caught.value.code == "GBE328"
        assert str(folder) in caught.value.hint


# --- what a person saves meanwhile -----------------------------------------------------------


def in_place(path: Path, text: bytes) -> None:
    path.write_bytes(text)


def by_rename(path: Path, text: bytes) -> None:
    fresh = path.with_name("saved~")
    fresh.write_bytes(text)
    fresh.replace(path)


@pytest.mark.parametrize("save", [in_place, by_rename])
@pytest.mark.parametrize("name", ["a.py", "b.py"])
def test_what_is_saved_between_the_last_look_and_the_exchange_is_not_lost(
    config: ResolvedBuild, monkeypatch: pytest.MonkeyPatch, name: str, save: Callable[[Path, bytes], None]
) -> None:
    path, really = Path(config.root, "agents", name), Folder.exchange

    def saved_before(folder: Folder, one: str, other: str) -> bool:
        monkeypatch.setattr(Folder, "exchange", really)
        if other == name:
            save(path, b"mine\n")
        else:
            monkeypatch.setattr(Folder, "exchange", saved_before)
        return really(folder, one, other)

    monkeypatch.setattr(Folder, "exchange", saved_before)
    refused(config, "GBE320")
    assert now(config) == {**before(), f"agents/{name}": b"mine\n"}


def test_who_had_the_old_file_open_and_writes_after_the_exchange_loses_nothing(
    config: ResolvedBuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The save goes into the file that was displaced, which is looked at once more before it is removed."""
    really, path = Target.clear, Path(config.root, "agents/a.py")
    with path.open("r+b", buffering=0) as opened:

        def write_first(target: Target) -> None:
            opened.write(b"a = 'mine'\n")
            monkeypatch.setattr(Target, "clear", really)
            really(target)

        monkeypatch.setattr(Target, "clear", write_first)
        refused(config, "GBE320")
    assert now(config) == {**before(), "agents/a.py": b"a = 'mine'\n"}


def test_of_two_saves_at_that_moment_the_later_one_stays_and_the_earlier_one_is_kept(
    config: ResolvedBuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, path, saves = Folder.exchange, Path(config.root, "agents/a.py"), [b"one\n", b"two\n"]

    def saved_before(folder: Folder, one: str, other: str) -> bool:
        if saves and other == "a.py":
            by_rename(path, saves.pop(0))
        return really(folder, one, other)

    monkeypatch.setattr(Folder, "exchange", saved_before)
    with pytest.raises(EditError) as caught:
        promote(config, CHANGED, "S001")
    assert caught.value.code == "GBE325"
    assert path.read_bytes() == b"two\n"
    assert path.with_name(".a.py.graphbus-new").read_bytes() == b"one\n"
    with pytest.raises(EditError):
        recover(config)
    assert path.with_name(".a.py.graphbus-new").read_bytes() == b"one\n"


@pytest.mark.slow
def test_of_hundreds_of_saves_during_promotions_none_is_lost(
    config: ResolvedBuild, figure: Callable[[str, object], None]
) -> None:
    """A person saves at any moment of a promotion, which then is refused, or is saved over: the save is there in the end."""
    path = Path(config.root, "agents/a.py")
    chance = random.Random(11)
    refusals: list[str] = []
    count = 200 if thoroughness.is_thorough else 50
    for number in range(count):
        text = f"a = 'save {number}'\n".encode()
        start, _ = CHANGED["agents/a.py"]
        path.write_bytes(start)
        begun = threading.Event()

        def person(text: bytes = text, begun: threading.Event = begun) -> None:
            begun.wait(10)
            time.sleep(chance.random() * 0.012)
            by_rename(path, text)

        saver = threading.Thread(target=person)
        saver.start()
        begun.set()
        try:
            promote(config, {"agents/a.py": CHANGED["agents/a.py"]}, f"S{number:03}")
        except EditError as error:
            refusals.append(error.code)
        saver.join()
        assert path.read_bytes() == text
    assert set(refusals) <= {"GBE320"}
    figure("saves lost during a promotion", f"0 of {count} ({len(refusals)} promotions refused)")


def test_without_an_exchange_files_are_replaced_as_ever(config: ResolvedBuild, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Folder, "exchange", lambda *_names: False)
    promote(config, CHANGED, "S001")
    assert now(config) == after()
    undo(config)
    assert now(config) == before()


# --- a journal that is not ours ----------------------------------------------------------------


def test_a_project_that_was_moved_keeps_its_journal(config: ResolvedBuild, tmp_path: Path) -> None:
    promote(config, CHANGED, "S001")
    moved = tmp_path.with_name(f"{tmp_path.name}-moved")
    tmp_path.rename(moved)
    there = ResolvedBuild(root=str(moved), paths=())
    promote(there, {"agents/a.py": (b"a = 2\n", b"a = 3\n")}, "S002")
    undo(there)
    assert now(there) == after()
    undo(there)
    assert now(there) == before()


def test_an_interrupted_change_of_a_project_that_was_moved_is_told_with_what_to_do(
    config: ResolvedBuild, tmp_path: Path
) -> None:
    interrupted(config, COMMITTING)
    moved = tmp_path.with_name(f"{tmp_path.name}-moved")
    tmp_path.rename(moved)
    there = ResolvedBuild(root=str(moved), paths=())
    with pytest.raises(EditError) as caught:
        recover(there)
    assert caught.value.code == "GBE328"
    (folder,) = Journal(there).foreign()
    assert str(folder) in caught.value.hint
    shutil.rmtree(folder)
    assert recover(there) == ()


@pytest.mark.parametrize(
    ("path", "is_ours"),
    [("agents/a.py", True), ("../a.py", False), ("agents/./a.py", False), ("/a.py", False), ("tests/test_a.py", False)],
)
def test_only_paths_that_a_proposal_may_change_are_changeable(path: str, is_ours: bool) -> None:
    assert is_changeable(path) == is_ours


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/etc/a.py", "its path is absolute"),
        ("agents/../a.py", "its path contains `.`, `..` or `//`"),
        ("agents/notes.txt", "it is not a Python file"),
        ("tests/test_a.py", "it is protected"),
        ("agents/none.py", "the project has no such Python file"),
    ],
)
def test_a_file_that_no_proposal_can_change_is_refused_with_the_reason(path: str, reason: str) -> None:
    error = unchangeable_error(path)
    assert error.code == "GBE323"
    assert reason in str(error)


def test_an_entry_that_was_changed_cannot_be_read(config: ResolvedBuild) -> None:
    promote(config, CHANGED, "S001")
    journal = Journal(config)
    (folder,) = (path for path in journal.folder.iterdir() if path.is_dir())
    (folder / "journal.json").write_bytes((folder / "journal.json").read_bytes() + b"\n")
    with pytest.raises(EditError, match="GBE328"):
        journal.read(folder)


def test_bytes_that_were_changed_in_the_journal_are_not_restored(config: ResolvedBuild) -> None:
    promote(config, CHANGED, "S001")
    journal = Journal(config)
    (folder,) = (path for path in journal.folder.iterdir() if path.is_dir())
    entry = journal.read(folder)
    assert journal.content(folder, entry.files[0], 0, "before") == b"a = 1\n"
    (folder / "before" / "0").write_bytes(b"evil\n")
    with pytest.raises(EditError, match="GBE328"):
        journal.content(folder, entry.files[0], 0, "before")


def test_what_a_killed_process_left_without_a_state_is_cleared_by_the_next_entry(config: ResolvedBuild) -> None:
    left = Journal(config).folder / ".0001-S000.new"
    left.mkdir(parents=True)
    promote(config, CHANGED, "S001")
    assert not left.exists()
    assert now(config) == after()


def test_a_file_is_not_put_beside_what_is_gone_or_over_what_somebody_saved(config: ResolvedBuild) -> None:
    (change, _) = promote(config, CHANGED, "S001")
    with Folder.at(Path(config.root, "agents")) as folder:
        target = Target(folder, "a.py", change)
        beside = Path(config.root, "agents", target.beside)
        beside.write_bytes(b"mine\n")
        with pytest.raises(EditError, match="GBE321"):
            target.put_beside(b"a = 1\n")
        target.remove_temporary()
        assert beside.read_bytes() == b"mine\n"
        beside.unlink()
        assert target.return_displaced()
        target.put_beside(b"a = 1\n")
        target.remove_temporary()
        assert not beside.exists()
        Path(config.root, "agents/a.py").unlink()
        with pytest.raises(FileNotFoundError):
            target.put_beside(b"a = 1\n")


def test_a_later_save_keeps_its_place_and_the_version_beside_it_stays(config: ResolvedBuild) -> None:
    (change, _) = promote(config, CHANGED, "S001")
    path = Path(config.root, "agents/a.py")
    with Folder.at(path.parent) as folder:
        target = Target(folder, "a.py", change)
        beside = path.with_name(target.beside)
        beside.write_bytes(b"earlier\n")
        path.write_bytes(b"later\n")
        assert not target.return_displaced()
        assert (path.read_bytes(), beside.read_bytes()) == (b"later\n", b"earlier\n")
        path.write_bytes(CHANGED["agents/a.py"][1])
        assert target.return_displaced()
        assert path.read_bytes() == b"earlier\n"


def test_a_link_in_place_of_a_file_is_another_version(config: ResolvedBuild) -> None:
    (change, _) = promote(config, CHANGED, "S001")
    path = Path(config.root, "agents/a.py")
    path.unlink()
    with Folder.at(path.parent) as folder:
        target = Target(folder, "a.py", change)
        assert target.state() == "missing"
        path.symlink_to("b.py")
        assert target.state() == "other"
        assert target.state("b.py") == "other"


def test_a_file_that_is_saved_while_it_is_taken_back_stays(
    config: ResolvedBuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    (change, _) = promote(config, CHANGED, "S001")
    path, really = Path(config.root, "agents/a.py"), Folder.exchange

    def saved_before(folder: Folder, one: str, other: str) -> bool:
        monkeypatch.setattr(Folder, "exchange", really)
        by_rename(path, b"mine\n")
        return really(folder, one, other)

    with Folder.at(path.parent) as folder:
        monkeypatch.setattr(Folder, "exchange", saved_before)
        assert not Target(folder, "a.py", change).take_old(b"a = 1\n")
    assert path.read_bytes() == b"mine\n"


@pytest.mark.parametrize("name", ["journal.json", "seal"])
def test_an_entry_whose_files_are_gone_or_links_is_not_ours(config: ResolvedBuild, name: str) -> None:
    promote(config, CHANGED, "S001")
    journal = Journal(config)
    (folder,) = (path for path in journal.folder.iterdir() if path.is_dir())
    kept = (folder / name).rename(folder / "kept")
    with pytest.raises(EditError, match="GBE328"):
        journal.read(folder)
    (folder / name).symlink_to(kept)
    with pytest.raises(EditError, match="GBE328"):
        journal.read(folder)
    assert journal.done() == []
