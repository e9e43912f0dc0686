"""Artifacts of older formats: upgraded whole or not at all, and never guessed or fixed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import graphbus_core
from graphbus_core import store
from graphbus_core.build import run_build_pipeline
from graphbus_core.compiler.project import learn_imports
from graphbus_core.errors import ArtifactError
from graphbus_core.model.artifacts import SCHEMA_VERSION
from graphbus_core.model.config import BuildConfig
from graphbus_core.store import migration, writing
from graphbus_core.store.folders import Folder
from graphbus_core.store.reading import MOST_ARTIFACT_BYTES
from tests.fakes.frozen_artifacts import FROZEN, SAMPLES, contents, thaw

SCHEMAS = Path(graphbus_core.__file__).parent / "schemas"


def migrate(folder: Path, **options: Any) -> migration.MigrationResult:
    return migration.migrate(folder, lambda known: learn_imports(folder, known), **options)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Artifacts of format 1 with a negotiation, beside their sources."""
    return thaw("format_1/negotiated", tmp_path)


@pytest.mark.parametrize("version", [0, -3])
def test_a_format_before_the_first_has_no_way_here(old: Path, version: int) -> None:
    path = old / store.MANIFEST
    path.write_text(path.read_text().replace('"schema_version": 1', f'"schema_version": {version}'))
    with pytest.raises(ArtifactError) as caught:
        migrate(old)
    assert (caught.value.code, caught.value.data["oldest"]) == ("GBE513", 1)


# --- frozen samples -----------------------------------------------------------------------------


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_frozen_sample_is_refused_as_it_is_and_loads_after_a_migration(tmp_path: Path, sample: str) -> None:
    folder = thaw(sample, tmp_path)
    before = contents(folder)
    with pytest.raises(ArtifactError) as caught:
        store.load(folder)
    assert caught.value.code == "GBE503"
    assert "graphbus migrate" in caught.value.hint
    done = migrate(folder)
    assert (f"format_{done.before}", done.after, sorted(done.changed)) == (
        sample.partition("/")[0],
        SCHEMA_VERSION,
        ["manifest.json"],
    )
    assert store.find_problems(folder) == ()
    after = contents(folder)
    assert {name for name in after if after[name] != before[name]} == {"manifest.json"}
    assert sorted(after) == sorted(before)


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_migrated_sample_fits_the_schemas_and_its_files_are_as_a_build_writes_them(
    tmp_path: Path, sample: str
) -> None:
    folder = thaw(sample, tmp_path)
    migrate(folder)
    artifacts = store.load(folder)
    for name in (*store.ARTIFACTS, store.MANIFEST):
        schema = json.loads((SCHEMAS / name.replace(".json", ".schema.json")).read_text())
        jsonschema.validate(json.loads((folder / name).read_bytes()), schema)
    assert artifacts.manifest is not None
    assert (folder / store.MANIFEST).read_bytes() == writing.encode_artifact(artifacts.manifest)


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_migration_learns_what_a_build_of_the_same_sources_says(tmp_path: Path, sample: str) -> None:
    folder = thaw(sample, tmp_path)
    migrate(folder)
    migrated = store.load_manifest(folder)
    roots = tuple(str(tmp_path / root) for root in migrated.roots)
    run_build_pipeline(BuildConfig(paths=roots, force=True))
    built = store.load_manifest(folder)
    assert (migrated.imports, migrated.third_party, migrated.sources) == (
        built.imports,
        built.third_party,
        built.sources,
    )


@pytest.mark.parametrize("sample", SAMPLES)
def test_migrating_twice_changes_nothing_and_twice_from_the_start_gives_the_same_bytes(
    tmp_path: Path, sample: str
) -> None:
    folders = [thaw(sample, tmp_path / name) for name in ("one", "another place")]
    for folder in folders:
        migrate(folder)
    once = [contents(folder) for folder in folders]
    assert once[0] == once[1]
    again = migrate(folders[0])
    assert (again.before, again.after, again.changed) == (SCHEMA_VERSION, SCHEMA_VERSION, {})
    assert contents(folders[0]) == once[0]


def test_old_artifacts_can_be_read_without_their_sources_and_say_what_they_do_not_know(tmp_path: Path) -> None:
    folder = FROZEN / "format_1/orders/built"
    artifacts, version, unsaid = migration.load_any(folder)
    assert (version, sorted(unsaid)) == (1, ["imports", "third_party"])
    assert len(artifacts.agents.agents) == 4
    migrated = thaw("format_1/orders", tmp_path)
    migrate(migrated)
    assert migration.load_any(migrated) == (store.load(migrated), SCHEMA_VERSION, frozenset())


# --- what is not laundered ------------------------------------------------------------------------


def _edit(name: str, old: bytes, new: bytes) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        data = (folder / name).read_bytes()
        assert old in data
        (folder / name).write_bytes(data.replace(old, new))

    return damage


def _put(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


def _grow(name: str) -> Callable[[Path], object]:
    return lambda folder: os.truncate(folder / name, MOST_ARTIFACT_BYTES + 1)


def _folder_instead(name: str) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return damage


def _pipe_instead(name: str) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return damage


@pytest.mark.parametrize(
    ("damage", "code", "place"),
    [
        (lambda folder: (folder / "manifest.json").unlink(), "GBE501", ""),
        (_put("manifest.json", b'{"schema_version": 1'), "GBE502", "manifest.json"),
        (_edit("manifest.json", b'"roots"', b'"rooms"'), "GBE502", "manifest.json"),
        (_edit("manifest.json", b'"import_roots": [', b'"import_roots": [1, '), "GBE502", "manifest.json"),
        (_edit("manifest.json", b'"schema_version": 1', b'"schema_version": 99'), "GBE504", "manifest.json"),
        (_edit("manifest.json", b'"graph.json": "', b'"graph.json": "0'), "GBE506", "graph.json"),
        (_edit("agents.json", b"Reader", b"Writer"), "GBE506", "agents.json"),
        (lambda folder: os.truncate(folder / "agents.json", 100), "GBE506", "agents.json"),
        (lambda folder: (folder / "topics.json").unlink(), "GBE505", "topics.json"),
        (_folder_instead("graph.json"), "GBE507", "graph.json"),
        (_grow("agents.json"), "GBE514", "agents.json"),
        (_pipe_instead("manifest.json"), "GBE502", "manifest.json"),
        (_pipe_instead("agents.json"), "GBE506", "agents.json"),
    ],
)
def test_each_damage_is_refused_with_one_clear_error_and_nothing_is_touched(
    old: Path, damage: Callable[[Path], object], code: str, place: str
) -> None:
    damage(old)
    before = contents(old) if code != "GBE514" else {}
    with pytest.raises(ArtifactError) as caught:
        migrate(old)
    assert (caught.value.code, str(caught.value.where)) == (code, str(old / place))
    assert caught.value.hint
    assert not before or contents(old) == before


@pytest.mark.parametrize("change", [lambda path: path.unlink(), lambda path: path.write_text("other")])
def test_what_the_sources_no_longer_tell_is_not_guessed(old: Path, change: Callable[[Path], object]) -> None:
    before = contents(old)
    change(old.parent / "agents" / "reader.py")
    with pytest.raises(ArtifactError) as caught:
        migrate(old)
    assert (caught.value.code, str(caught.value.where)) == ("GBE512", "agents/reader.py")
    assert contents(old) == before


# --- whole or not at all --------------------------------------------------------------------------


@pytest.mark.parametrize("failing", ["replace", "fsync", "write"])
def test_a_migration_that_fails_leaves_the_old_artifacts_whole(
    old: Path, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rename of the manifest is the only step that changes what a reader finds."""
    before = contents(old)

    def fail(*_given: object, **_named: object) -> None:
        raise OSError(28, "No space left on device")

    if failing == "write":
        monkeypatch.setattr(Folder, "write", fail)
    else:
        monkeypatch.setattr(os, failing, fail)
    with pytest.raises(ArtifactError) as caught:
        migrate(old)
    assert (caught.value.code, caught.value.exit_status) == ("GBE510", 6)
    monkeypatch.undo()
    assert contents(old) == before
    migrate(old)
    assert store.find_problems(old) == ()
