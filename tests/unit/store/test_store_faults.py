"""Artifacts that are missing, damaged, old or half written, and disks that do not take them."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest

from graphbus_core import store
from graphbus_core.errors import ArtifactError
from graphbus_core.model.artifacts import SCHEMA_VERSION, AgentsArtifact, GraphArtifact, Manifest, TopicsArtifact
from graphbus_core.store import BuildArtifacts, writing
from tests.patience import PATIENCE_S

_VERSION = b'"schema_version": %d' % SCHEMA_VERSION
ROOT = Path(__file__).parents[3]
MAKE = """
from pathlib import Path
from graphbus_core.store import writing
from tests.unit.store.test_store_faults import artifacts
"""


def artifacts(*nodes: str, sources: Mapping[str, str] = {}) -> BuildArtifacts:
    return BuildArtifacts(
        graph=GraphArtifact(nodes=nodes, edges=(), activation_order=nodes, generations=(nodes,)),
        agents=AgentsArtifact(()),
        topics=TopicsArtifact(()),
        manifest=Manifest(
            schema_version=SCHEMA_VERSION, graphbus_version="0", project_root="..", import_roots=(".",), roots=("a",),
            artifacts={}, sources=dict(sources), imports={}, third_party=(),
        ),
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with whole artifacts."""
    path = tmp_path / ".graphbus"
    writing.save_artifacts(path, artifacts("A"))
    return path


def _rewrite(name: str, old: bytes, new: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes().replace(old, new))


def _truncate(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-9])


def _resign(name: str, data: bytes) -> Callable[[Path], object]:
    """Put another content there, with a manifest that fits it."""

    def damage(folder: Path) -> None:
        from hashlib import sha256

        (folder / name).write_bytes(data)
        manifest = store.load_manifest(folder)
        digests = {**manifest.artifacts, name: sha256(data).hexdigest()}
        (folder / store.MANIFEST).write_bytes(
            writing.encode_artifact(msgspec.structs.replace(manifest, artifacts=digests))
        )

    return damage


def _folder_instead(name: str) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return damage


@pytest.mark.parametrize(
    ("damage", "code", "place"),
    [
        (lambda folder: (folder / store.MANIFEST).unlink(), "GBE501", ""),
        (_truncate(store.MANIFEST), "GBE502", "manifest.json"),
        (lambda folder: (folder / store.MANIFEST).write_bytes(b""), "GBE502", "manifest.json"),
        (lambda folder: (folder / store.MANIFEST).write_bytes(b"{}"), "GBE502", "manifest.json"),
        (lambda folder: (folder / store.MANIFEST).write_bytes(b"\xff\xfe"), "GBE502", "manifest.json"),
        (lambda folder: (folder / store.MANIFEST).write_bytes(b"[" * 50_000), "GBE502", "manifest.json"),
        (_rewrite(store.MANIFEST, b'"sources"', b'"source"'), "GBE502", "manifest.json"),
        (_rewrite(store.MANIFEST, _VERSION, b'"schema_version": 1'), "GBE503", "manifest.json"),
        (
            _rewrite(store.MANIFEST, _VERSION, b'"schema_version": 99, "later": 1'),
            "GBE504",
            "manifest.json",
        ),
        (lambda folder: (folder / "graph.json").unlink(), "GBE505", "graph.json"),
        (_rewrite("graph.json", b'"A"', b'"B"'), "GBE506", "graph.json"),
        (_truncate("topics.json"), "GBE506", "topics.json"),
        (_resign("graph.json", b"{"), "GBE502", "graph.json"),
        (_resign("graph.json", b'{"nodes": 1}'), "GBE502", "graph.json"),
        (_folder_instead("graph.json"), "GBE507", "graph.json"),
        (_folder_instead(store.MANIFEST), "GBE507", "manifest.json"),
    ],
)
def test_each_kind_of_damage_has_its_own_code_and_place(
    folder: Path, damage: Callable[[Path], object], code: str, place: str
) -> None:
    damage(folder)
    with pytest.raises(ArtifactError) as caught:
        store.load(folder)
    assert caught.value.code == code
    assert str(caught.value.where) == str(folder / place) or not place
    assert "graphbus build" in caught.value.hint or code == "GBE507"
    assert [problem.code for problem in store.find_problems(folder)] == [code]


def test_a_manifest_that_is_missing_is_named_where_the_rest_is_there(folder: Path) -> None:
    (folder / store.MANIFEST).unlink()
    with pytest.raises(ArtifactError, match=r"There are no build artifacts here: manifest\.json is missing\."):
        store.load(folder)


@pytest.mark.parametrize("place", ["missing", "file.txt"])
def test_a_folder_that_is_none_has_noartifacts(tmp_path: Path, place: str) -> None:
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(ArtifactError) as caught:
        store.load(tmp_path / place)
    assert caught.value.code == "GBE501"


def test_all_problems_are_found_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one")
    folder = tmp_path / ".graphbus"
    writing.save_artifacts(folder, artifacts("A", sources={"a.py": store.digest_of(tmp_path / "a.py"), "gone.py": "0"}))
    assert [str(problem.where) for problem in store.find_problems(folder)] == ["gone.py"]
    (tmp_path / "a.py").write_text("two")
    (folder / "graph.json").write_text("{}")
    (folder / "agents.json").unlink()
    found = [(problem.code, Path(str(problem.where)).name) for problem in store.find_problems(folder)]
    assert found == [("GBE506", "graph.json"), ("GBE505", "agents.json"), ("GBE508", "a.py"), ("GBE508", "gone.py")]


def test_sources_that_drifted_are_named(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(name)
    digests = {name: store.digest_of(tmp_path / name) for name in ("a.py", "b.py")}
    folder = tmp_path / ".graphbus"
    manifest = writing.save_artifacts(folder, artifacts(sources={**digests, "c.py": "0"}))
    assert store.find_changed_sources(folder, manifest) == ("c.py",)
    (tmp_path / "a.py").write_text("other")
    assert store.find_changed_sources(folder, manifest) == ("a.py", "c.py")
    assert store.project_root(folder, manifest) == str(tmp_path)


# --- writing ------------------------------------------------------------------------------------


def _run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MAKE + textwrap.dedent(script), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.slow
def test_a_full_disk_leaves_the_artifacts_of_before_whole(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = _run(
        """
        import resource, signal, sys
        from graphbus_core.errors import ArtifactError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            writing.save_artifacts(Path(sys.argv[1]), artifacts(*(f"Agent{number}" for number in range(1000))))
        except ArtifactError as error:
            print(error.code, error.exit_status)
        """,
        str(folder),
    )
    assert done.stdout == "GBE510 6\n", done.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("place", ["file.txt", "file.txt/below", "link"])
def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file.txt").write_text("")
    (tmp_path / "link").symlink_to("link")
    with pytest.raises(ArtifactError) as caught:
        writing.save_artifacts(tmp_path / place, artifacts())
    assert caught.value.code == "GBE510"


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0, 5, 6])
def test_a_build_killed_between_two_files_is_noticed(folder: Path, kept: int) -> None:
    """The child kills itself before the n-th rename; what is left is old, new, or refused."""
    done = _run(
        """
        import os, signal, sys
        seen = []
        replace = os.replace
        def counted(name, target, **folders):
            if len(seen) == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGKILL)
            seen.append(target)
            return replace(name, target, **folders)
        os.replace = counted
        writing.save_artifacts(Path(sys.argv[1]), artifacts("New"))
        """,
        str(folder),
        str(kept),
    )
    assert done.returncode == (-signal.SIGKILL if kept < 6 else 0)
    problems = [problem.code for problem in store.find_problems(folder)]
    if kept == 0:
        assert problems == []
        assert store.load(folder).graph.nodes == ("A",)
    elif kept == 6:
        assert problems == []
        assert store.load(folder).graph.nodes == ("New",)
    else:
        assert problems == ["GBE506"]
    writing.save_artifacts(folder, artifacts("Again"))
    assert store.load(folder).graph.nodes == ("Again",)


@pytest.mark.slow
def test_two_builds_at_once_leave_one_whole_set(folder: Path) -> None:
    script = (
        MAKE + "import sys\nfor _ in range(20): writing.save_artifacts(Path(sys.argv[1]), artifacts(sys.argv[2]))\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", script, str(folder), name], cwd=ROOT) for name in ("One", "Two")]
    assert [child.wait(timeout=PATIENCE_S) for child in running] == [0, 0]
    assert store.load(folder).graph.nodes in (("One",), ("Two",))


def test_an_atomic_write_keeps_the_permissions_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("old")
    path.chmod(0o750)
    writing.write_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert os.listdir(tmp_path) == ["a.py"]
