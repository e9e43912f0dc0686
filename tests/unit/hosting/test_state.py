"""`self.state`: JSON that outlives the process, written all or nothing, and never in silence not at all."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbus_core import GraphBusNode, connect, schema_method, subscribe
from graphbus_core.errors import RunError
from graphbus_core.hosting import database
from graphbus_core.hosting.state import States
from graphbus_core.model.state import AgentState
from tests.patience import PATIENCE_S


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state" / "state.sqlite3")


@pytest.fixture
def states(path: str) -> Iterator[States]:
    states = States(path)
    yield states
    states.close()


@pytest.fixture
def state(states: States) -> AgentState:
    return states.of("Orders")


class Counter(GraphBusNode):
    @subscribe("/Tick")
    def on_tick(self) -> None:
        self.state["ticks"] = self.state.get("ticks", 0) + 1

    @schema_method(output_schema={"ticks": int})
    def ticks(self) -> dict[str, int]:
        return {"ticks": self.state.get("ticks", 0)}


# --- what an agent sees ---------------------------------------------------------------------


def test_what_an_agent_sets_is_there_in_the_next_run(path: str) -> None:
    for expected in (1, 2):
        with connect(Counter, state=path) as graph:
            graph.publish("/Tick")
            assert graph.call("Counter", "ticks") == {"ticks": expected}


def test_a_graph_that_uses_no_state_makes_no_file(path: str) -> None:
    with connect(Counter, state=path):
        pass
    assert not Path(path).parent.exists()


def test_a_state_is_a_mapping_with_its_keys_in_order(state: AgentState) -> None:
    state.update({"b": 1, "ä": [1, {"x": None}]}, a=True)
    assert list(state) == ["a", "b", "ä"]
    assert (len(state), "a" in state, "c" in state, 3 in state) == (3, True, False, False)
    assert state == {"a": True, "b": 1, "ä": [1, {"x": None}]}
    assert state.pop("b") == 1
    assert state.setdefault("a", 5) is True
    assert state.get("b") is None
    with pytest.raises(KeyError):
        state["b"]
    with pytest.raises(KeyError):
        del state["b"]
    state.clear()
    assert dict(state) == {}
    assert "Orders" in repr(state)
    assert len({state, state}) == 1
    assert state != {"a": 1}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_every_json_value_comes_back_as_it_was(states: States) -> None:
    @given(JSON)
    def check(value: Any) -> None:
        states.of("Orders")["key"] = value
        back = states.of("Orders")["key"]
        assert back == value
        assert type(back) is type(value)

    check()


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        ({"items": [1, {2, 3}]}, "cart.items[1]"),
        (object(), "cart"),
        ({"when": {1: "x"}}, "cart.when"),
        (b"bytes", "cart"),
        (float("nan"), "cart"),
        ({"rate": float("inf")}, "cart"),
    ],
)
def test_what_is_not_json_is_refused_with_its_path_and_the_old_value_stays(
    state: AgentState, value: Any, spelled: str
) -> None:
    state["cart"] = "old"
    with pytest.raises(RunError) as refusal:
        state["cart"] = value
    assert refusal.value.code == "GBE641"
    assert spelled in refusal.value.sentence
    assert state["cart"] == "old"


def test_a_value_has_the_limit_of_a_payload(state: AgentState) -> None:
    state["big"] = "x" * 1_000_000
    with pytest.raises(RunError, match="GBE642"):
        state["big"] = ["x" * 600_000, "y" * 600_000]
    assert len(state["big"]) == 1_000_000


# --- versions and transactions ---------------------------------------------------------------


def test_each_change_gives_a_version_that_was_never_there(state: AgentState) -> None:
    seen = [state.version("k")]
    for value in (1, 1, 2):
        state["k"] = value
        seen.append(state.version("k"))
    del state["k"]
    assert state.version("k") == 0
    state["k"] = 1
    seen.append(state.version("k"))
    assert seen[0] == 0
    assert len(set(seen)) == 5
    assert seen == sorted(seen)
    assert state.read("k") == (1, seen[-1])
    assert state.read("other") == (None, 0)


def test_update_if_sets_only_what_nobody_has_changed(state: AgentState) -> None:
    assert state.update_if("k", "first", 0)
    assert not state.update_if("k", "second", 0)
    version = state.version("k")
    state["k"] = "by another"
    assert not state.update_if("k", "lost", version)
    assert state["k"] == "by another"
    assert state.update_if("k", "won", state.version("k"))
    assert state["k"] == "won"


def test_a_transaction_writes_all_or_nothing(state: AgentState) -> None:
    with state.transaction():
        state["a"] = 1
        state["b"] = 2
    with suppress(ValueError), state.transaction():
        state["a"] = 10
        del state["b"]
        assert dict(state) == {"a": 10}
        raise ValueError("broken")
    assert dict(state) == {"a": 1, "b": 2}


def test_inside_of_a_transaction_one_reads_what_one_has_set(state: AgentState) -> None:
    state["old"] = 0
    with state.transaction():
        state["new"] = 1
        del state["old"]
        assert list(state) == ["new"]
        assert len(state) == 1
        assert ("old" in state, state.get("new")) == (False, 1)
        assert state.version("new") == 0
        assert state.update_if("new", 2, 0)
        assert not state.update_if("new", 3, 99)
        with state.transaction():
            state["inner"] = 1
    assert dict(state) == {"inner": 1, "new": 2}


def test_a_transaction_whose_grounds_have_changed_writes_nothing(path: str, states: States, state: AgentState) -> None:
    state["stock"] = 5
    elsewhere = States(path)

    def sell() -> None:
        with state.transaction():
            state["stock"] = state["stock"] - 1
            state["sold"] = 1
            elsewhere.of("Orders")["stock"] = 0

    with pytest.raises(RunError) as refusal:
        sell()
    elsewhere.close()
    assert refusal.value.code == "GBE646"
    assert "'stock'" in refusal.value.sentence
    assert dict(state) == {"stock": 0}


@pytest.mark.parametrize("read", [len, list, dict, lambda state: sum(state.values())])
def test_a_transaction_that_has_read_all_keys_is_told_of_new_ones(
    path: str, states: States, state: AgentState, read: Any
) -> None:
    state["one"] = 1
    elsewhere = States(path)

    def count() -> None:
        with state.transaction():
            read(state)
            elsewhere.of("Orders")["two"] = 2
            state["total"] = 1

    with pytest.raises(RunError, match=r"'two'.*GBE646"):
        count()
    assert dict(state) == {"one": 1, "two": 2}
    with state.transaction():
        state["three"] = len(state)
        elsewhere.of("Others")["other"] = 1
    elsewhere.close()
    assert dict(state) == {"one": 1, "two": 2, "three": 2}


def test_a_transaction_that_has_read_all_keys_is_told_of_those_that_are_gone(
    path: str, states: States, state: AgentState
) -> None:
    state.update(one=1, two=2)
    elsewhere = States(path)

    def count() -> None:
        with state.transaction():
            state["total"] = len(state)
            del elsewhere.of("Orders")["two"]
            assert list(state) == ["one", "total", "two"], "what was read once stays as it was"

    with pytest.raises(RunError, match=r"'two'.*GBE646"):
        count()
    elsewhere.close()
    assert dict(state) == {"one": 1}


@pytest.mark.parametrize("take", [lambda state: state.pop("job0", None), lambda state: state.popitem()[1]])
def test_what_is_taken_out_goes_to_one_taker_only(path: str, take: Callable[[AgentState], Any]) -> None:
    many = [States(path) for _ in range(4)]
    for number in range(20):
        many[0].of("Orders")[f"job{number}"] = number
    taken: list[Any] = []
    at_once = threading.Barrier(len(many))

    def work(states: States) -> None:
        at_once.wait(PATIENCE_S)
        with suppress(KeyError):
            while (value := take(states.of("Orders"))) is not None:
                taken.append(value)

    threads = [threading.Thread(target=work, args=(states,)) for states in many]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for states in many:
        states.close()
    assert len(taken) == len(set(taken))


def test_a_transaction_may_go_on_over_an_await_and_holds_nobody_up(states: States) -> None:
    one, other = states.of("One"), states.of("Other")

    async def slow() -> None:
        with one.transaction():
            one["x"] = 1
            await asyncio.sleep(0.02)
            assert one["x"] == 1

    async def quick() -> None:
        await asyncio.sleep(0.01)
        assert "x" not in one
        other["y"] = 1

    async def both() -> None:
        await asyncio.gather(slow(), quick())

    asyncio.run(both())
    assert (dict(one), dict(other)) == ({"x": 1}, {"y": 1})


# --- its life -------------------------------------------------------------------------------


def test_state_is_there_from_on_start_to_on_stop_and_not_before_or_after(path: str) -> None:
    class Lives(GraphBusNode):
        def on_start(self) -> None:
            self.state["started"] = True

        def on_stop(self) -> None:
            self.state["stopped"] = True

    node = Lives()
    with pytest.raises(RunError, match="GBE616"):
        node.state["early"] = 1
    with connect(node, state=path) as graph:
        kept = node.state
        assert dict(graph.node("Lives").state) == {"started": True}
    for state in (kept, node.state):
        with pytest.raises(RunError, match="GBE647"):
            state["late"] = 1
    again = States(path)
    assert dict(again.of("Lives")) == {"started": True, "stopped": True}
    again.close()
    again.close()


# --- the file -------------------------------------------------------------------------------


def test_the_file_is_its_owner_s_alone(state: AgentState, path: str) -> None:
    state["a"] = 1
    assert os.stat(path).st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"this is no database, but somebody's notes" * 30, "it is damaged"),
        ("CREATE TABLE notes (x)", "it belongs to another program"),
        ("PRAGMA application_id = 7", "it belongs to another program"),
        ("newer", "a newer GraphBus has written it"),
    ],
)
def test_a_file_that_is_not_ours_is_refused_and_not_written_over(path: str, content: bytes | str, said: str) -> None:
    Path(path).parent.mkdir()
    if isinstance(content, bytes):
        Path(path).write_bytes(content)
    else:
        if content == "newer":
            newer = States(path)
            newer.of("A")["x"] = 1
            newer.close()
            content = "PRAGMA user_version = 99"
        connection = sqlite3.connect(path)
        connection.execute(content)
        connection.close()
    before = Path(path).read_bytes()
    states = States(path)
    for _ in range(2):
        with pytest.raises(RunError) as refusal:
            states.of("Orders")["a"] = 1
        assert refusal.value.code == "GBE643"
        assert said in refusal.value.sentence
        assert str(refusal.value.where) == path
    states.close()
    assert Path(path).read_bytes() == before


def test_a_disk_that_is_full_is_refused_and_the_old_value_stays(states: States, state: AgentState) -> None:
    state["a"] = "old"
    with states.open().connection() as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(RunError) as refusal:
        state["a"] = "x" * 100_000
    assert refusal.value.code == "GBE645"
    assert "full" in refusal.value.sentence
    assert state["a"] == "old"


def test_a_file_that_another_process_holds_is_refused_after_a_while(path: str) -> None:
    states = States(path)
    states.of("Orders")["a"] = "old"
    states.close()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        opened = database.Database(path, "The state of the agents", 0x47425354, (), timeout_s=0.05)
        with pytest.raises(RunError, match="GBE644"), opened.write_transaction():
            pass
        opened.close()
    finally:
        holder.close()


def test_two_processes_use_one_file(states: States, state: AgentState, path: str) -> None:
    state["n"] = 0
    code = """
        import sys
        from graphbus_core.hosting.state import States
        states = States(sys.argv[1])
        state = states.of("Orders")
        for _ in range(50):
            while True:
                value, version = state.read("n")
                if state.update_if("n", value + 1, version):
                    break
        states.close()
    """
    program = "\n".join(
        line.strip() if line.strip().startswith(("import", "from")) else line[8:] for line in code.splitlines()
    )
    children = [subprocess.Popen([sys.executable, "-c", program, path]) for _ in range(2)]
    assert [child.wait(PATIENCE_S) for child in children] == [0, 0]
    assert state["n"] == 100
