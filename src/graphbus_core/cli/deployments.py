"""Keeps what runs in each environment in the git repository of the project: a ref for each environment and component.

    refs/graphbus/deployed/production/shop  ->  commit  ->  record.json

Refs touch no branch and start no pipeline, cannot conflict in a merge, and have the earlier records as history. `git push` and
`git fetch` share them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from graphbus_core.contracts.deployed import DeployedComponent, damaged_record, decode_record, encode_record
from graphbus_core.deploy.pipelines import check_ref_name
from graphbus_core.editing.git import Repository
from graphbus_core.errors import DeployError, Place

_REFS = "refs/graphbus/deployed"
_FILE = "record.json"
_PERSON = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in (("NAME", "GraphBus"), ("EMAIL", "graphbus@localhost"))
}


class Deployment(NamedTuple):
    """A recorded component, and when it was recorded, as ISO 8601."""

    found: DeployedComponent
    recorded_at: str


class Deployments:
    """The records of the project in a folder.

    Raises:
        DeployError: GBE747, the folder is in no git repository.
        NegotiationError: GBE430, git is not installed; GBE431, it fails.
    """

    def __init__(self, root: Path) -> None:
        repository = Repository.find(root)
        if repository is None:
            raise DeployError("GBE747", where=Place(str(root)))
        self._repository = repository
        self._git = repository.git.with_variables(**_PERSON)

    def revision(self) -> str:
        """Return the commit that is checked out; empty before the first one."""
        return self._repository.head()

    def environments(self) -> list[str]:
        """Return the environments in which something is recorded, sorted."""
        return sorted({environment for _, environment, _, _ in self._refs()})

    def read(self, environment: str = "") -> list[Deployment]:
        """Return what is recorded in an environment, or in all, sorted by name.

        Raises:
            DeployError: GBE748, a record is damaged; GBE749, it was written by a newer version.
        """
        return [
            Deployment(self._read(commit, found, component), recorded_at)
            for commit, found, component, recorded_at in self._refs()
            if environment in ("", found)
        ]

    def _read(self, commit: str, environment: str, component: str) -> DeployedComponent:
        status, data, _ = self._git.attempt("cat-file", "blob", f"{commit}:{_FILE}")
        if status:
            raise damaged_record(environment, component, f"it has no {_FILE}")
        return decode_record(data, environment, component)

    def _refs(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield the commit, environment, component and time of each record."""
        form = "%(objectname)%00%(refname)%00%(committerdate:iso-strict)"
        for line in os.fsdecode(self._git.run("for-each-ref", f"--format={form}", _REFS)).splitlines():
            commit, ref, recorded_at = line.split("\0")
            parts = ref.removeprefix(f"{_REFS}/").split("/")
            if len(parts) == 2:
                yield commit, unquote(parts[0]), unquote(parts[1]), recorded_at

    def write(self, component: DeployedComponent) -> None:
        """Record a component; the earlier record stays in the history of its ref."""
        ref = _ref_of(component.environment, component.component)
        status, before, _ = self._git.attempt("rev-parse", "--verify", "--quiet", ref)
        parent = "" if status else os.fsdecode(before).strip()
        blob = os.fsdecode(self._git.run("hash-object", "-w", "--stdin", stdin=encode_record(component))).strip()
        tree = os.fsdecode(self._git.run("mktree", stdin=f"100644 blob {blob}\t{_FILE}\n".encode())).strip()
        message = f"Record {component.component} in {component.environment}"
        commit = self._git.line("commit-tree", tree, *(("-p", parent) if parent else ()), "-m", message)
        self._git.run("update-ref", "-m", message, ref, commit, parent)

    def bundle(self, environment: str, component: str, path: str) -> None:
        """Write the record of a component to a git bundle; raise GBE431 if the file cannot be written."""
        self._git.run("bundle", "create", "--quiet", os.path.abspath(path), _ref_of(environment, component))

    def remove(self, environment: str, component: str) -> bool:
        """Forget a component; False if it is not recorded."""
        ref = _ref_of(environment, component)
        status, _, _ = self._git.attempt("rev-parse", "--verify", "--quiet", ref)
        if not status:
            self._git.run("update-ref", "-d", ref)
        return not status


def _ref_of(environment: str, component: str) -> str:
    """Return the ref of a record; characters that git does not accept there are escaped.

    Raises:
        DeployError: GBE703, a name cannot be used.
    """
    names = (
        quote(check_ref_name(name, "environment"), safe="").replace(".", "%2E") for name in (environment, component)
    )
    return "/".join((_REFS, *names))
