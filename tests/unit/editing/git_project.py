"""Real git repositories in temporary folders."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.project_files import write_project


def git(folder: Path, *arguments: str, **variables: str) -> str:
    """Run git as a person would, without what this machine has configured."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_GLOBAL": os.environ.get("GIT_CONFIG_GLOBAL", os.devnull),
        "GIT_CONFIG_NOSYSTEM": "1",
        **variables,
    }
    done = subprocess.run(["git", *arguments], cwd=folder, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return os.fsdecode(done.stdout)


def make_repository(folder: Path, files: Mapping[str, str | bytes] | None = None) -> Path:
    """Make a repository with one commit of these files; without files, with none."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    for key, value in (("user.name", "A Person"), ("user.email", "person@example.com")):
        git(folder, "config", key, value)
    if files:
        commit_files(folder, files)
    return folder


def commit_files(folder: Path, files: Mapping[str, str | bytes], message: str = "begin") -> str:
    """Write and commit files, and give the id of the commit."""
    write_project(folder, files)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", message)
    return git(folder, "rev-parse", "HEAD").strip()
