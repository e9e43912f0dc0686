"""What is exported and imported is what was kept: for all values, and whatever was there before."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.hosting.state import States
from graphbus_core.hosting.state_file import Snapshot, StateFile, parse, plan_import, plan_reset, render

AGENTS = st.sampled_from(["A", "B", "Ä b"])
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(-(10**60), 10**60),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
        st.just("\ud800"),
    ),
    lambda values: st.one_of(st.lists(values, max_size=3), st.dictionaries(st.text(max_size=3), values, max_size=3)),
    max_leaves=6,
)
STATES = st.dictionaries(AGENTS, st.dictionaries(KEYS, VALUES, max_size=4), max_size=3)


def fill(path: Path, contents: dict[str, dict[str, Any]]) -> None:
    states = States(str(path))
    try:
        for agent, values in contents.items():
            for key, value in values.items():
                states.of(agent)[key] = value
    finally:
        states.close()


def texts(snapshot: Snapshot) -> dict[str, dict[str, str]]:
    return {agent: {key: kept.text for key, kept in keys.items()} for agent, keys in snapshot.agents.items() if keys}


@given(before=STATES, wanted=STATES)
def test_what_was_exported_comes_back_byte_for_byte(
    before: dict[str, dict[str, Any]], wanted: dict[str, dict[str, Any]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one, other = Path(folder, "one"), Path(folder, "other")
        fill(one, wanted)
        fill(other, before)
        with closing(StateFile(str(one))) as here, closing(StateFile(str(other))) as there:
            exported = here.snapshot()
            document = render(exported)
            read = parse(document, "export")
            assert (texts(read), read.version) == (texts(exported), exported.version)
            there.change(None, plan_reset(None), lambda _before: None)
            there.change(
                None, plan_import(read.agents, is_merge=False), lambda _before: None, after_version=read.version
            )
            after = there.snapshot()
            assert texts(after) == texts(exported)
            newest = [kept.version for keys in after.agents.values() for kept in keys.values()]
            assert all(version > exported.version for version in newest)


@given(before=STATES, wanted=STATES, more=st.booleans())
def test_an_import_does_what_its_plan_says_and_the_backup_takes_it_back(
    before: dict[str, dict[str, Any]], wanted: dict[str, dict[str, Any]], more: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one, other = Path(folder, "one"), Path(folder, "other")
        fill(one, before)
        fill(other, wanted)
        with closing(StateFile(str(one))) as here, closing(StateFile(str(other))) as there:
            was, imported = here.snapshot(), there.snapshot(wanted)
            backups: list[bytes] = []
            plan = plan_import(imported.agents, is_merge=more)
            changes = here.change(imported.agents, plan, lambda seen: backups.append(render(seen)))
            expected = {agent: dict(keys) for agent, keys in texts(was).items()}
            for agent, keys in imported.agents.items():
                kept = expected.get(agent, {}) if more else {}
                expected[agent] = {**kept, **{key: each.text for key, each in keys.items()}}
            assert texts(here.snapshot()) == {agent: keys for agent, keys in expected.items() if keys}
            assert bool(changes) == bool(backups)
            for backup in backups:
                here.change(None, plan_import(parse(backup, "backup").agents, is_merge=False), lambda _seen: None)
            assert texts(here.snapshot()) == texts(was)
