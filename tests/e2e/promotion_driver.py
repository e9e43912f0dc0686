"""Run as a child process: promote, undo or recover, and be killed, or fail, at the n-th step that touches the disk.

    python -m tests.e2e.promotion_driver START COPIES ACTION HOW [SAVED_AT]

For each step there is one process of its own, at work in its own copy of START; the outcome of each is printed as JSON. Every
step is seen by an audit hook of the interpreter (open, rename, mkdir, remove, ...) or by the call of os.fsync: nothing of the
code under test is replaced.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
from pathlib import Path

from graphbus_core.editing.journal import Journal
from graphbus_core.editing.promotion import promote, recover, undo
from graphbus_core.errors import EditError
from graphbus_core.model.config import ResolvedBuild

FILES = {f"agents/{name}.py": (f"{name} = 'old'\n".encode(), f"{name} = 'new'\n".encode()) for name in ("a", "b", "c")}
DONE, TOO_FEW = 0, 99
REFUSED = {"GBE320": 20, "GBE321": 21, "GBE325": 25}
SAVED = b"what a person has saved\n"
STEPS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.chown", "os.listdir", "os.scandir"}


class Steps:
    """Counts what touches the disk in a folder, and lets the n-th step go wrong.

    Args:
        saved_at: A person saves SAVED just before this one of the exchanges of a file with its new one; 0: nobody does.
    """

    def __init__(self, root: str, how: str, at: int, saved_at: int) -> None:
        self.seen = self._exchanges = 0
        self._root, self._how, self._at, self._saved_at = root, how, at, saved_at

    def step(self) -> None:
        self.seen += 1
        if self.seen == self._at and self._how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.seen == self._at and self._how == "fail":
            raise OSError(errno.EIO, "Input/output error")

    def hook(self, event: str, arguments: tuple[object, ...]) -> None:
        is_way = event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & os.O_PATH)
        if event in STEPS and arguments and not is_way and self._is_ours(event, arguments[0]):
            self.step()
        if self._saved_at and event == "os.rename" and str(arguments[0]).endswith(".graphbus-new"):
            self._exchanges += 1
            if self._exchanges == self._saved_at:
                save(Path(self._root, "agents", str(arguments[1])))

    def _is_ours(self, event: str, name: object) -> bool:
        """What lies in the project is named by its whole path, by one relative to an open folder, or by a descriptor."""
        if isinstance(name, int):
            return event != "open"
        return str(name).startswith(self._root) or not str(name).startswith("/")


def act(root: str, action: str, how: str, at: int, saved_at: int = 0) -> int:
    """Do it here, with the n-th step going wrong, and give the exit status."""
    config = ResolvedBuild(root=root, paths=(f"{root}/agents",))
    steps = Steps(root, how, at, saved_at)
    really_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        steps.step()
        really_fsync(descriptor)

    os.fsync = fsync
    sys.addaudithook(steps.hook)
    try:
        if action == "promote":
            promote(config, FILES, "S001")
        elif action == "undo":
            undo(config, "S001")
        else:
            recover(config)
    except EditError as error:
        return REFUSED[error.code] if steps.seen >= at else TOO_FEW
    return DONE if steps.seen >= at else TOO_FEW


def save(path: Path) -> None:
    """Save as an editor does, past all that is counted here."""
    handle = os.open(path, os.O_WRONLY | os.O_TRUNC)
    os.write(handle, SAVED)
    os.close(handle)


def reseal(root: Path) -> None:
    """A copy is another place: let its journal be one that was written there."""
    journal = Journal(ResolvedBuild(root=str(root), paths=()))
    for entry in journal.folder.glob("[0-9]*"):
        (entry / "seal").write_bytes(journal._make_seals((entry / "journal.json").read_bytes()))


def in_a_child(root: Path, action: str, how: str, at: int, saved_at: int) -> int:
    """Give the exit status of a process of its own, negative when a signal ended it."""
    child = os.fork()
    if child == 0:
        os._exit(act(str(root), action, how, at, saved_at))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(start: str, copies: str, action: str, how: str, saved_at: str = "0") -> None:
    outcomes = []
    for at in range(1, 1000):
        root = shutil.copytree(start, Path(copies, str(at)))
        reseal(root)
        status = in_a_child(root, action, how, at, int(saved_at))
        if status == TOO_FEW:
            shutil.rmtree(root)
            break
        outcomes.append(status)
    print(json.dumps(outcomes))


def write_old(root: Path) -> None:
    (root / "agents").mkdir(parents=True)
    for path, (before, _) in FILES.items():
        (root / path).write_bytes(before)
        (root / path).chmod(0o640)


if __name__ == "__main__":
    main(*sys.argv[1:])
