"""What is exported and imported is what was kept: for all values, and whatever was there before."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.cli.state import parse_export, render_export
from graphbus_core.hosting.state import States, StateSnapshot

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


def texts(snapshot: StateSnapshot) -> dict[str, dict[str, str]]:
    return {agent: {key: kept.text for key, kept in keys.items()} for agent, keys in snapshot.agents.items() if keys}


def wish(snapshot: StateSnapshot) -> dict[str, dict[str, str]]:
    return {agent: {key: kept.text for key, kept in keys.items()} for agent, keys in snapshot.agents.items()}


@given(before=STATES, wanted=STATES, is_merge=st.booleans())
def test_what_was_exported_comes_back_byte_for_byte_and_the_backup_takes_it_back(
    before: dict[str, dict[str, Any]], wanted: dict[str, dict[str, Any]], is_merge: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one, other = Path(folder, "one"), Path(folder, "other")
        fill(one, before)
        fill(other, wanted)
        with closing(States(str(one))) as here, closing(States(str(other))) as there:
            was, exported = here.snapshot(), there.snapshot(wanted)
            read = parse_export(render_export(exported), "export")
            assert (wish(read), read.version) == (wish(exported), exported.version)
            backups: list[bytes] = []
            changes = here.change(
                wish(read),
                lambda seen: backups.append(render_export(seen)),
                is_merge=is_merge,
                after_version=read.version,
            )
            expected = texts(was)
            for agent, keys in wish(exported).items():
                expected[agent] = {**(expected.get(agent, {}) if is_merge else {}), **keys}
            after = here.snapshot()
            assert texts(after) == {agent: keys for agent, keys in expected.items() if keys}
            assert bool(changes) == bool(backups)
            for change in changes:
                assert change.after is None or after.agents[change.agent][change.key].version > exported.version
            for backup in backups:
                here.change(wish(parse_export(backup, "backup")), lambda _seen: None, is_merge=False)
            assert texts(here.snapshot()) == texts(was)
