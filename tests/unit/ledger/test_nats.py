"""NatsLedger on real servers: what it refuses, what survives a crash of a process or of the server, and the traps of NATS."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from graphbus_core.errors import RunError
from graphbus_core.hosting.state import States
from graphbus_core.ledger import nats_link, nats_pump, nats_stream
from graphbus_core.ledger.attached import open_engine
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.nats import NatsLedger, deploy_stream
from graphbus_core.ledger.nats_link import NatsLink
from graphbus_core.ledger.nats_names import parse_address, subject_of
from graphbus_core.ledger.nats_stream import filters_of
from graphbus_core.ledger.seam import AgentMissing, Dead, Done, EngineGone, Lease, Parked, StateChange, Subscription
from graphbus_core.model.config import NatsConfig
from tests.fakes.nats_server import NEWEST, OLDEST, NatsServer, free_port
from tests.patience import PATIENCE_S

MILL = Subscription(agent="Mill", handler="Mill.grind", topic="/Grain")
STORE = Subscription(agent="Store", handler="Store.keep", topic="/Flour")

UNSET = NatsConfig()
SHARED = NatsConfig(shared=("Mill",))
HOW_MUCH = '{"topic": "/Price/Asked", "payload": null, "src": "Mill"}'

_apps = count()


@pytest.fixture(scope="module", params=[NEWEST, OLDEST])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(kind, tmp_path_factory.mktemp("nats")) as running:
        yield running


@pytest.fixture
def url(server: NatsServer) -> str:
    return server.url(f"app{next(_apps)}")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state.sqlite3")


def grain(*names: object, topic: str = "/Grain", data: object = None) -> list[Envelope]:
    return [Envelope(id=str(name), type=topic, time=1.5, data=data) for name in names]  # type: ignore[arg-type]


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what must come."""
    deadline = time.monotonic() + PATIENCE_S
    while not await is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


async def next_lease(ledger: NatsLedger, agent: str = "Mill") -> Lease:
    """Wait for the next delivery."""
    found: list[Lease] = []

    async def has_one() -> bool:
        found.extend(await ledger.claim(agent, (0,)))
        return bool(found)

    await until(has_one)
    return found[0]


async def handle(ledger: NatsLedger, number: int, agent: str = "Mill") -> list[str]:
    """Handle this many deliveries; return the ids of their events."""
    names = []
    for _ in range(number):
        lease = await next_lease(ledger, agent)
        names.append(lease.envelope.id)
        await ledger.settle(lease, Done())
    return names


async def is_handled(ledger: NatsLedger) -> bool:
    """Whether nothing is open for the agents of this ledger, at the server or in the file."""
    return all(each.is_idle for each in await ledger.lag())


async def consumer(ledger: NatsLedger, agent: str = "Mill") -> dict[str, object]:
    return await ledger._link.request(f"$JS.API.CONSUMER.INFO.GB_{ledger.address.app}.{agent}")


async def stream(ledger: NatsLedger) -> dict[str, dict[str, object]]:
    return await ledger._link.request(f"$JS.API.STREAM.INFO.GB_{ledger.address.app}")


async def with_api(url: str, subject: str, body: dict[str, object]) -> None:
    """Send a request of another program to JetStream."""
    link = NatsLink(parse_address(url), lambda: None)
    await link.connect()
    await link.request(f"$JS.API.{subject}", body)
    await link.close()


def opening(
    url: str, path: str, subscriptions: Sequence[Subscription] = (MILL,), settings: NatsConfig = UNSET
) -> RunError:
    """Return the error of an engine that must not open."""

    async def attempt() -> RunError:
        ledger = NatsLedger(url, path, settings=settings)
        try:
            with pytest.raises(RunError) as caught:
                await ledger.open(subscriptions)
            return caught.value
        finally:
            await ledger.close()

    return asyncio.run(attempt())


# --- names ---


@pytest.mark.parametrize(
    ("url", "place", "user", "app"),
    [
        ("nats://localhost", "localhost:4222", "", "graphbus"),
        ("nats://10.0.0.1:5000/shop", "10.0.0.1:5000", "", "shop"),
        ("tls://anna:pa%40ss@host/my-shop_2", "host:4222", "anna", "my-shop_2"),
        ("nats://[::1]:4223/", "[::1]:4223", "", "graphbus"),
    ],
)
def test_an_address_has_a_server_and_an_application(url: str, place: str, user: str, app: str) -> None:
    address = parse_address(url)
    assert (address.place, address.user, address.app) == (place, user, app)
    assert address.password == ("pa@ss" if user else "")


@pytest.mark.parametrize(
    "url",
    ["nats://", "nats://host:0x1", "nats://host:99999", "nats://host/a/b", "nats://host/a.b", "nats://a@b@c/", "nats"],
)
def test_a_malformed_address_is_refused_and_its_password_not_shown(url: str) -> None:
    with pytest.raises(RunError) as caught:
        parse_address(url.replace("nats://", "nats://anna:secret@", 1) if "@" not in url else url)
    assert caught.value.code == "GBE659"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("topics", "filters"),
    [
        (["/A/B"], ["gb.x.A.B"]),
        (["/A/*", "/A/B"], ["gb.x.A.*"]),
        (["/A/**", "/A/*", "/A/B/C"], ["gb.x.A.>"]),
        (["/A", "/A/**"], ["gb.x.A", "gb.x.A.>"]),
        (["/**"], ["gb.x.>"]),
        (["/A/*", "/*/B"], []),
        (["/A/*/C", "/A/B/**"], []),
        (["/A", "/B"], ["gb.x.A", "gb.x.B"]),
    ],
)
def test_filters_do_not_overlap(topics: list[str], filters: list[str]) -> None:
    assert filters_of("x", topics, (2, 10)) == filters
    assert filters_of("x", topics, (2, 9)) == (filters if len(filters) == 1 else [])


def test_a_topic_is_a_subject() -> None:
    assert subject_of("shop", "/Order/Created") == "gb.shop.Order.Created"


# --- what is refused ---


def test_a_command_says_within_seconds_that_no_server_is_there() -> None:
    with pytest.raises(RunError) as caught:
        asyncio.run(deploy_stream(f"nats://anna:secret@127.0.0.1:{free_port()}/x", UNSET, [MILL]))
    assert caught.value.code == "GBE659"
    assert "there is no answer within 5 s" in caught.value.sentence
    assert "secret" not in str(caught.value)


@pytest.mark.slow
def test_a_process_waits_for_a_server_that_answers_late_and_says_so_once(
    tmp_path: Path, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its supervisor would only start it again. A connection that is taken and not served is as slow as a busy server."""
    late = NatsServer(NEWEST, tmp_path / "nats")

    async def work() -> None:
        ledger = NatsLedger(late.url("x", "anna:secret"), path)
        with socket.create_server(("127.0.0.1", late.port)):
            opening = asyncio.create_task(ledger.open([MILL]))
            await asyncio.sleep(nats_link.CONNECT_S + 1)
            assert not opening.done()
        async with asyncio.timeout(PATIENCE_S):
            while not caplog.messages:  # noqa: ASYNC110 - a log has no event
                await asyncio.sleep(0.05)
            await asyncio.sleep(1)  # several attempts are refused
            await asyncio.to_thread(late.start)
            await opening
        assert ledger.is_reachable
        await ledger.close()

    try:
        asyncio.run(work())
    finally:
        late.kill()
    said = [each for each in caplog.messages if "is waited for" in each]
    assert len(said) == 1
    assert "secret" not in caplog.text


def test_a_server_without_jetstream_is_refused(kind: str, tmp_path: Path, path: str) -> None:
    with NatsServer(kind, tmp_path / "plain", has_jetstream=False) as plain:
        error = opening(plain.url("x"), path)
    assert error.code == "GBE659"
    assert "it has no JetStream" in error.sentence


def test_wrong_credentials_are_refused_and_not_shown(kind: str, tmp_path: Path, path: str) -> None:
    users = "authorization { user: anna, password: right }"
    with NatsServer(kind, tmp_path / "closed", config=users) as closed:
        error = opening(closed.url("x", "anna:secret"), path)
        assert "it refuses the credentials" in error.sentence
        assert "secret" not in str(error)

        async def open_it() -> None:
            ledger = NatsLedger(closed.url("x", "anna:right"), path)
            await ledger.open([MILL])
            await ledger.close()

        asyncio.run(open_it())


def test_an_old_server_is_refused(url: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_stream, "OLDEST", (9, 9))
    assert "it is too old" in opening(url, path).sentence


@pytest.mark.parametrize(
    "change", [{"retention": "limits"}, {"discard": "old"}, {"max_age": 10**12}, {"storage": "memory"}]
)
def test_a_stream_with_other_settings_is_refused(url: str, path: str, change: dict[str, object]) -> None:
    """`discard: old` and an age would lose events in silence."""
    app = parse_address(url).app
    config = {"name": f"GB_{app}", "subjects": [f"gb.{app}.>"], "retention": "interest", "discard": "new"}
    if "max_age" in change:
        config["duplicate_window"] = 600 * 10**9  # type: ignore[assignment]
    asyncio.run(with_api(url, f"STREAM.CREATE.GB_{app}", config | change))
    assert "is not one of this application" in opening(url, path).sentence


def test_settings_of_the_stream_are_used_compared_and_changed(url: str, path: str) -> None:
    """Without them, an operator may change the stream as it is needed."""
    small, large = NatsConfig(max_bytes=2_000_000), NatsConfig(max_bytes=3_000_000, replicas=1)
    sizes = []

    async def look(ledger: NatsLedger) -> None:
        config = (await stream(ledger))["config"]
        sizes.append((config["max_bytes"], config["num_replicas"]))

    run(url, path, [MILL], look, settings=small)
    error = opening(url, path, settings=large)
    assert "`max_bytes` of its stream" in error.sentence
    assert "is 2000000, and the settings say 3000000" in error.sentence
    assert "`graphbus nats deploy`" in error.hint
    asyncio.run(deploy_stream(url, large, [MILL]))
    run(url, path, [MILL], look, settings=large)
    run(url, path, [MILL], look)
    assert sizes == [(2_000_000, 1), (3_000_000, 1), (3_000_000, 1)]


def test_replicas_that_the_server_does_not_have_are_refused(url: str, path: str) -> None:
    """One server cannot keep an event three times."""
    assert "JetStream refuses a stream" in opening(url, path, settings=NatsConfig(replicas=3)).sentence
    assert opening(url, path, settings=NatsConfig(replicas=3)).code == "GBE659"


def test_a_stream_that_does_not_fit_the_disk_of_the_server_is_refused(kind: str, tmp_path: Path, path: str) -> None:
    """So that a server refuses events when its stream is full, and not when its disk is, which loses what it has acknowledged."""
    with NatsServer(kind, tmp_path / "nats", jetstream="max_file_store: 5000000") as server:
        error = opening(server.url(), path)
        assert "insufficient storage" in error.sentence
        assert "`max_bytes`" in error.hint

        async def main() -> None:
            ledger = NatsLedger(server.url(), path, settings=NatsConfig(max_bytes=4_000_000))
            await ledger.open([MILL])
            await ledger.close()

        asyncio.run(main())


def test_a_stream_of_another_application_is_refused(url: str, path: str) -> None:
    app = parse_address(url).app
    asyncio.run(with_api(url, f"STREAM.CREATE.GB_{app}", {"name": f"GB_{app}", "subjects": [f"other{app}.>"]}))
    assert "`subjects`" in opening(url, path).sentence


def test_subjects_of_another_stream_are_refused(url: str, path: str) -> None:
    app = parse_address(url).app
    asyncio.run(with_api(url, f"STREAM.CREATE.other{app}", {"name": f"other{app}", "subjects": [f"gb.{app}.x"]}))
    assert "another application has its subjects" in opening(url, path).sentence


def test_a_consumer_that_cannot_be_changed_is_refused(url: str, path: str) -> None:
    app = parse_address(url).app

    async def make_one() -> None:
        ledger = NatsLedger(url, path, agents=[])
        await ledger.open([])
        await ledger.close()
        config = {"durable_name": "Mill", "deliver_subject": "push.here", "ack_policy": "explicit"}
        await with_api(url, f"CONSUMER.DURABLE.CREATE.GB_{app}.Mill", {"stream_name": f"GB_{app}", "config": config})

    asyncio.run(make_one())
    assert opening(url, path).code == "GBE659"


def test_an_event_that_is_larger_than_the_server_accepts_is_refused(url: str, path: str) -> None:
    """At once when it is appended, and when a handler has published it; then nothing of the attempt is kept."""

    async def body(ledger: NatsLedger) -> None:
        large = grain("large", data="x" * 1_048_000)
        with pytest.raises(RunError, match="larger than it accepts"):
            await ledger.append(large)
        await ledger.append(grain("a"))
        lease = await next_lease(ledger)
        with pytest.raises(RunError, match="larger than it accepts"):
            await ledger.settle(lease, Done(), [StateChange("Mill", {"n": "1"})], large)
        await ledger.settle(lease, Dead("handler", "too large"))
        assert (await ledger.lag())[0].dead == 1

    run(url, path, [MILL], body)
    assert States(path).find("Mill", "n") == (None, 0)


def test_the_name_of_the_engine_is_its_address(path: str) -> None:
    assert isinstance(open_engine("nats://localhost/shop", path), NatsLedger)
    with pytest.raises(RunError, match="GBE658"):
        open_engine("natz://localhost/shop", path)


# --- what the server keeps ---


def run(
    url: str,
    path: str,
    subscriptions: Sequence[Subscription],
    body: Callable[[NatsLedger], Awaitable[object]],
    **options: object,
) -> None:
    """Run a test on an open engine."""

    async def main() -> None:
        ledger = NatsLedger(url, path, **options)  # type: ignore[arg-type]
        await ledger.open(subscriptions)
        try:
            await body(ledger)
        finally:
            async with asyncio.timeout(20):  # `drain` of nats-py would take 30 s, because a pull waits
                await ledger.close()

    asyncio.run(main())


def test_the_server_keeps_an_event_until_it_is_handled(url: str, path: str) -> None:
    """Done, dead or parked; and of one that no agent wants, nothing is kept."""

    async def body(ledger: NatsLedger) -> None:
        await ledger.append([*grain("a", "b", "c"), *grain("d", topic="/Unknown")])
        assert (await stream(ledger))["state"]["messages"] == 3
        for left, outcome in ((2, Done()), (1, Dead("handler", "no")), (0, Parked("later"))):
            await ledger.settle(await next_lease(ledger), outcome)
            await until(lambda left=left: _has_left(ledger, left))  # type: ignore[misc]

    run(url, path, [MILL], body)


async def _has_left(ledger: NatsLedger, number: int) -> bool:
    return (await stream(ledger))["state"]["messages"] == number


def test_an_id_is_stored_once_by_the_server(url: str, path: str) -> None:
    async def body(ledger: NatsLedger) -> None:
        await ledger.append(grain("a", "b", "a"))
        await ledger.append(grain("b"))
        assert (await stream(ledger))["state"]["messages"] == 2

    run(url, path, [MILL], body)


def test_a_full_stream_refuses_what_is_new_and_keeps_what_is_old(url: str, path: str) -> None:
    """The publisher waits; it goes on when there is room."""

    async def body(ledger: NatsLedger) -> None:
        config = (await stream(ledger))["config"]
        await ledger._link.request(f"$JS.API.STREAM.UPDATE.{config['name']}", config | {"max_bytes": 2000})
        await ledger.append(grain("a", data="x" * 900))
        with pytest.raises(EngineGone, match="maximum bytes"):
            await ledger.append(grain("b", data="x" * 1900))
        assert await handle(ledger, 1) == ["a"]
        await until(lambda: _has_left(ledger, 0))
        await ledger.append(grain("b", data="x" * 900))
        assert await handle(ledger, 1) == ["b"]

    run(url, path, [MILL], body)


def test_what_a_handler_does_for_long_is_not_handed_out_again(url: str, path: str) -> None:
    async def body(ledger: NatsLedger) -> None:
        await ledger.append(grain("a"))
        lease = await next_lease(ledger)
        await asyncio.sleep(2.5)
        info = await consumer(ledger)
        assert (info["num_redelivered"], info["num_ack_pending"]) == (0, 1)
        await ledger.settle(lease, Done())
        await until(lambda: is_handled(ledger))

    run(url, path, [MILL], body, ack_wait_s=1.0)


def test_the_consumer_never_gives_an_event_up(url: str, path: str) -> None:
    """Attempts are counted here: a limit at the server would drop events whose process ended."""

    async def body(ledger: NatsLedger) -> None:
        config = (await consumer(ledger))["config"]
        assert isinstance(config, dict)
        wanted = {"ack_policy": "explicit", "max_deliver": -1, "ack_wait": 30 * 10**9, "filter_subject": "gb.%s.Grain"}
        wanted["filter_subject"] %= ledger.address.app  # type: ignore[operator]
        assert {name: config[name] for name in wanted} == wanted

    run(url, path, [MILL], body)


def test_a_durable_consumer_gets_the_filter_of_the_present_build(url: str, path: str) -> None:
    """nats-py would bind to the old filter in silence."""
    later = [Subscription(agent="Mill", handler="Mill.grind", topic=topic) for topic in ("/Rye", "/Wheat/*")]

    async def first(ledger: NatsLedger) -> None:
        await ledger.append(grain("a"))
        assert await handle(ledger, 1) == ["a"]

    async def second(ledger: NatsLedger) -> None:
        await ledger.append([*grain("b"), *grain("c", topic="/Rye"), *grain("d", topic="/Wheat/Red")])
        assert await handle(ledger, 2) == ["c", "d"]
        await until(lambda: is_handled(ledger))
        assert await _has_left(ledger, 0)

    run(url, path, [MILL], first)
    run(url, path, later, second)


def test_events_wait_for_an_agent_whose_process_has_not_started(url: str, path: str, tmp_path: Path) -> None:
    async def publish(ledger: NatsLedger) -> None:
        await ledger.append(grain("a", "b", topic="/Flour"))

    async def body(ledger: NatsLedger) -> None:
        assert await handle(ledger, 2, "Store") == ["a", "b"]

    run(url, path, [MILL, STORE], publish, agents=["Mill"])
    run(url, str(tmp_path / "other.sqlite3"), [MILL, STORE], body, agents=["Store"])


def test_pulls_that_end_are_followed_by_others(url: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_pump, "_PULL_S", 0.1)
    monkeypatch.setattr(nats_pump, "_HEARTBEAT_S", 0.04)

    async def body(ledger: NatsLedger) -> None:
        for name in "abc":
            await asyncio.sleep(0.3)
            await ledger.append(grain(name))
            assert await handle(ledger, 1) == [name]
        await until(lambda: is_handled(ledger))
        assert (await consumer(ledger))["num_redelivered"] == 0

    run(url, path, [MILL], body)


def test_more_events_than_are_fetched_at_once_arrive_in_order(url: str, path: str) -> None:
    names = [str(n) for n in range(3 * nats_pump.PREFETCH)]

    async def body(ledger: NatsLedger) -> None:
        await ledger.append(grain(*names))
        assert await handle(ledger, len(names)) == names
        await until(lambda: is_handled(ledger))
        assert (await consumer(ledger))["num_redelivered"] == 0

    run(url, path, [MILL], body)


def test_what_is_no_event_of_a_graph_is_refused(url: str, path: str, caplog: pytest.LogCaptureFixture) -> None:
    async def body(ledger: NatsLedger) -> None:
        await ledger._link.send(f"gb.{ledger.address.app}.Grain", b"no event")
        await ledger.append(grain("a"))
        assert await handle(ledger, 1) == ["a"]
        await until(lambda: is_handled(ledger))

    run(url, path, [MILL], body)
    assert "is not an event of a graph" in caplog.text


# --- several processes ---


def test_two_processes_of_an_agent_may_share_its_events(url: str, tmp_path: Path) -> None:
    """If the settings say so: each event is handled by one of them."""

    async def main() -> None:
        ledgers = [NatsLedger(url, str(tmp_path / f"{n}.sqlite3"), settings=SHARED) for n in range(2)]
        for each in ledgers:
            await each.open([MILL])
        names = [str(n) for n in range(600)]
        await ledgers[0].append(grain(*names))
        found: list[str] = []
        while len(found) < len(names):
            for each in ledgers:
                for lease in await each.claim("Mill", (0,)):
                    found.append(lease.envelope.id)
                    await each.settle(lease, Done())
            await asyncio.sleep(0)
        assert sorted(found) == sorted(names)
        await until(lambda: is_handled(ledgers[0]))
        for each in ledgers:
            await each.close()

    asyncio.run(main())


def test_processes_with_other_agents_may_share_a_file(url: str, path: str) -> None:
    both = [MILL, STORE]

    async def main() -> None:
        mill, store = NatsLedger(url, path, agents=["Mill"]), NatsLedger(url, path, agents=["Store"])
        await mill.open(both)
        await store.open(both)
        await mill.append(grain("a", "b"))
        for _ in "ab":
            lease = await next_lease(mill)
            await mill.settle(lease, Done(), (), grain(f"{lease.envelope.id}2", topic="/Flour"))
        assert await handle(store, 2, "Store") == ["a2", "b2"]
        await until(lambda: is_handled(store))
        await mill.close()
        await store.close()

    asyncio.run(main())


def test_agents_of_different_processes_ask_each_other(url: str, tmp_path: Path) -> None:
    """A question waits for the process of the agent, and fails if there is none for a while; at once if it does not wait."""

    async def main() -> None:
        mill, store = NatsLedger(url, str(tmp_path / "a"), agents=["Mill"]), NatsLedger(url, str(tmp_path / "b"))
        await mill.open([MILL, STORE])
        for missing_s, timeout_s in ((0.0, PATIENCE_S), (0.3, PATIENCE_S), (PATIENCE_S, 0.3)):
            began = time.monotonic()
            with pytest.raises(AgentMissing):
                await mill.ask("Store", HOW_MUCH, timeout_s, missing_s)
            assert time.monotonic() - began < PATIENCE_S
        asking = asyncio.create_task(mill.ask("Store", HOW_MUCH, PATIENCE_S, PATIENCE_S))
        await store.open([STORE])
        async for _ in store.watch():
            if questions := await store.take_questions(["Store"]):
                break
        assert [(each.agent, each.text) for each in questions] == [("Store", HOW_MUCH)]
        assert not await store.take_questions(["Store"])
        await store.answer(questions[0], "ten sacks")
        assert await asking == "ten sacks"
        await mill.close()
        await store.close()

    asyncio.run(main())


def test_agents_of_a_process_have_orders_of_their_own(url: str, path: str) -> None:
    """An event that two agents get may come to one of them first; that does not put it before others there."""
    other = Subscription(agent="Log", handler="Log.on", topic="/**")

    async def body(ledger: NatsLedger) -> None:
        names = [str(n) for n in range(60)]
        await ledger.append([*grain(*names[:30], topic="/Other"), *grain(*names[30:])])
        assert await handle(ledger, 30) == names[30:]
        assert await handle(ledger, 60, "Log") == names

    run(url, path, [MILL, other], body)


def test_what_was_published_last_is_on_the_server_when_a_process_has_ended(url: str, path: str) -> None:
    """A process of an agent that is scaled down may not run again for days."""

    async def main() -> None:
        mill = NatsLedger(url, path, agents=["Mill"])
        await mill.open([MILL, STORE])
        await mill.append(grain("a"))
        await mill.settle(await next_lease(mill), Done(), (), grain(*range(1000), topic="/Flour"))
        await mill.close()
        store = NatsLedger(url, f"{path}-2", agents=["Store"])
        await store.open([STORE])
        assert (await stream(store))["state"]["last_seq"] == 1001
        await store.close()

    asyncio.run(main())


# --- crashes ---


CRASH = """
import asyncio, os, signal, sys
from graphbus_core.ledger import nats
from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.inbox import InboxLedger
from graphbus_core.ledger.nats import NatsLedger
from graphbus_core.ledger.seam import Done, StateChange, Subscription

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

async def main(url, path, moment):
    subscriptions = [Subscription(agent="Mill", handler="Mill.grind", topic="/Grain"),
                     Subscription(agent="Store", handler="Store.keep", topic="/Flour")]
    ledger = NatsLedger(url, path, agents=["Mill"], lease_s=0.5)
    if moment == "before the relay":
        ledger._relay_some = lambda: die() if ledger._local.outgoing(["Mill"], 1) else asyncio.sleep(0, True)
    if moment == "before the outbox is emptied":
        InboxLedger.forget_outgoing = die
    await ledger.open(subscriptions)
    await ledger.append([Envelope(id=name, type="/Grain", time=1.5) for name in "abc"])
    while True:
        for lease in await ledger.claim("Mill", (0,)):
            change = StateChange("Mill", {lease.envelope.id: "1"}, {lease.envelope.id: 0})
            flour = Envelope(id=lease.envelope.id * 2, type="/Flour", time=1.5)
            if moment == "before the settlement":
                die()
            await ledger.settle(lease, Done(), [change], [flour])
        await asyncio.sleep(0.001)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("moment", ["before the settlement", "before the relay", "before the outbox is emptied"])
def test_a_killed_process_loses_and_doubles_nothing(url: str, path: str, tmp_path: Path, moment: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CRASH), url, path, moment], check=False, timeout=PATIENCE_S
    )
    assert process.returncode == -signal.SIGKILL

    async def main() -> None:
        both = [MILL, STORE]
        mill = NatsLedger(url, path, agents=["Mill"], ack_wait_s=1.0, lease_s=0.5)
        store = NatsLedger(url, str(tmp_path / "store.sqlite3"), agents=["Store"])
        await mill.open(both)
        await store.open(both)
        found: list[str] = []

        async def work() -> bool:
            for lease in await mill.claim("Mill", (0,)):
                change = StateChange(
                    "Mill", {lease.envelope.id: "1"}, {lease.envelope.id: 0}
                )  # fails if it is done twice
                await mill.settle(lease, Done(), [change], grain(lease.envelope.id * 2, topic="/Flour"))
            for lease in await store.claim("Store", (0,)):
                found.append(lease.envelope.id)
                await store.settle(lease, Done())
            return len(found) >= 3 and await is_handled(mill) and await is_handled(store)

        await until(work)
        assert found == ["aa", "bb", "cc"]
        assert await _has_left(mill, 0)
        await mill.close()
        await store.close()

    asyncio.run(main())
    assert States(path).keys("Mill") == ["a", "b", "c"]


def test_events_that_were_on_their_way_in_a_crash_keep_their_order(url: str, path: str) -> None:
    """The server hands them out again after `ack_wait`; later ones do not come before them."""

    async def body(ledger: NatsLedger) -> None:
        link, inbox = ledger._link, ledger._link.new_inbox()
        name = f"GB_{ledger.address.app}"
        pump = ledger._pumps["Mill"]
        await ledger._end(ledger._tasks.pop("Mill"))
        await pump.close()
        lost: list[object] = []
        await link.listen(inbox, lost.append)
        await ledger.append(grain("a", "b", "c"))
        await link.send(f"$JS.API.CONSUMER.MSG.NEXT.{name}.Mill", b"3", inbox)
        await until(lambda: _has(lost, 3))

    async def later(ledger: NatsLedger) -> None:
        await ledger.append(grain("d", "e"))
        assert await handle(ledger, 5) == ["a", "b", "c", "d", "e"]

    run(url, path, [MILL], body, ack_wait_s=1.0)
    run(url, path, [MILL], later, ack_wait_s=1.0)


async def _has(found: list[object], number: int) -> bool:
    return len(found) >= number


def test_what_a_closing_process_has_not_stored_is_given_back(url: str, path: str) -> None:
    """The next process goes on at once, not after `ack_wait`, and in order."""
    names = [str(n) for n in range(1000)]

    async def first(ledger: NatsLedger) -> None:
        await ledger.append(grain(*names))
        assert await handle(ledger, 100) == names[:100]

    async def second(ledger: NatsLedger) -> None:
        async with asyncio.timeout(60):
            assert await handle(ledger, 900) == names[100:]

    run(url, path, [MILL], first, ack_wait_s=600.0)
    run(url, path, [MILL], second, ack_wait_s=600.0)


def test_nothing_is_lost_or_doubled_when_the_server_is_killed(kind: str, tmp_path: Path, path: str) -> None:
    names = [str(n) for n in range(400)]

    async def main(server: NatsServer) -> None:
        ledger = NatsLedger(server.url("x"), path, ack_wait_s=1.0)
        await ledger.open([MILL, STORE])
        found: list[str] = []

        async def publish() -> None:
            for name in names:
                while True:
                    with suppress(EngineGone):
                        await ledger.append(grain(name))
                        break
                    await asyncio.sleep(0.02)

        async def grind() -> None:
            while True:
                for lease in await ledger.claim("Mill", (0,)):
                    change = StateChange("Mill", {lease.envelope.id: "1"}, {lease.envelope.id: 0})
                    await ledger.settle(lease, Done(), [change], grain(f"f{lease.envelope.id}", topic="/Flour"))
                for lease in await ledger.claim("Store", (0,)):
                    found.append(lease.envelope.id)
                    await ledger.settle(lease, Done())
                await asyncio.sleep(0.001)

        tasks = [asyncio.create_task(publish()), asyncio.create_task(grind())]
        for mark in (100, 200):
            await until(lambda mark=mark: _has(found, mark))  # type: ignore[misc, arg-type]
            server.kill()
            await asyncio.sleep(0.3)
            await asyncio.to_thread(server.start)
        await tasks[0]
        await until(lambda: _has(found, len(names)))  # type: ignore[arg-type]
        await until(lambda: is_handled(ledger))
        tasks[1].cancel()
        assert found == [f"f{name}" for name in names]
        await ledger.close()

    with NatsServer(kind, tmp_path / "nats") as server:
        asyncio.run(main(server))
    assert len(States(path).keys("Mill")) == len(names)


def test_handling_goes_on_while_the_server_is_away(
    kind: str, tmp_path: Path, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What is in the file is handled; what is published waits in the outbox, or is refused where it can be repeated."""

    async def main(server: NatsServer) -> None:
        ledger = NatsLedger(server.url("x"), path)
        await ledger.open([MILL, STORE])
        await ledger.append(grain("a", "b"))
        lease = await next_lease(ledger)
        server.kill()
        await until(lambda: _is_down(ledger))
        await ledger.settle(lease, Done(), (), grain("c", topic="/Flour"))
        assert await handle(ledger, 1) == ["b"]
        with pytest.raises(EngineGone):
            await ledger.append(grain("d"))
        server.start()
        assert await handle(ledger, 1, "Store") == ["c"]
        await ledger.append(grain("d"))
        assert await handle(ledger, 1) == ["d"]
        await ledger.close()

    with NatsServer(kind, tmp_path / "nats") as server:
        asyncio.run(main(server))
    ours = [each.getMessage() for each in caplog.records if each.name == "graphbus.ledger"]
    assert len([each for each in ours if "is lost" in each]) == 1
    assert len([each for each in ours if each.endswith(" is back")]) == 1


def test_a_ledger_says_whether_its_server_can_be_used(kind: str, tmp_path: Path, path: str) -> None:
    """`/readyz` asks it: handlers go on out of the file, so that no failing call would tell."""

    async def becomes(ledger: NatsLedger, wanted: bool) -> None:
        async def is_so() -> bool:
            return ledger.is_reachable == wanted

        await until(is_so)

    async def main() -> None:
        with NatsServer(kind, tmp_path / "nats") as server:
            ledger = NatsLedger(server.url(), path)
            assert not ledger.is_reachable
            await ledger.open([MILL])
            assert ledger.is_reachable
            server.kill()
            await becomes(ledger, wanted=False)
            await asyncio.to_thread(server.start)
            await becomes(ledger, wanted=True)
            await ledger.close()

    asyncio.run(main())


def test_a_process_that_cannot_declare_while_the_server_is_away_goes_on(kind: str, tmp_path: Path, path: str) -> None:
    """It once looked again without a pause, and nothing else ran any more."""

    async def main(server: NatsServer) -> None:
        ledger = NatsLedger(server.url("x"), path)
        await ledger.open([MILL])
        server.kill()
        await until(lambda: _is_down(ledger))
        ledger._declare_soon()
        await asyncio.sleep(1.5)
        await asyncio.to_thread(server.start)
        await until(lambda: _is_up(ledger))
        await ledger.append(grain("a"))
        assert await handle(ledger, 1) == ["a"]
        await ledger.close()

    with NatsServer(kind, tmp_path / "nats") as server:
        asyncio.run(main(server))


async def _is_down(ledger: NatsLedger) -> bool:
    return not ledger._link.is_up


def test_a_client_that_gives_up_is_replaced(kind: str, tmp_path: Path, path: str) -> None:
    """nats-py closes for ever, without an error, when a server refuses the credentials once."""

    async def main(server: NatsServer) -> None:
        ledger = NatsLedger(server.url("x", "anna:right"), path)
        await ledger.open([MILL])
        client = ledger._link._client
        assert client is not None
        server.kill()
        server.configure("authorization { user: anna, password: other }")
        await asyncio.to_thread(server.start)
        await until(lambda: _is_closed(client))
        server.kill()
        server.configure("authorization { user: anna, password: right }")
        await asyncio.to_thread(server.start)
        await until(lambda: _is_up(ledger))
        await ledger.append(grain("a"))
        assert await handle(ledger, 1) == ["a"]
        await ledger.close()

    with NatsServer(kind, tmp_path / "nats", config="authorization { user: anna, password: right }") as server:
        asyncio.run(main(server))


async def _is_closed(client: object) -> bool:
    return bool(client.is_closed)  # type: ignore[attr-defined]


async def _is_up(ledger: NatsLedger) -> bool:
    return ledger._link.is_up


def test_what_waits_on_the_server_is_seen_without_handling_anything(url: str, path: str) -> None:
    """`graphbus ledger lag`: what no process is done with, wherever it runs."""

    async def main() -> None:
        outside, looking = NatsLedger(url, path, agents=[]), NatsLedger(url, path)
        await outside.open([MILL, STORE])
        await outside.append(grain("a", "b"))
        await outside.close()
        lags = {each.subscription.agent: each.waiting for each in await looking.lag()}
        assert lags == {"Mill": 2, "Store": 0}
        await looking.close()

    asyncio.run(main())


def test_a_consumer_that_was_deleted_is_made_again(url: str, path: str) -> None:
    async def body(ledger: NatsLedger) -> None:
        await ledger.append(grain("a"))
        assert await handle(ledger, 1) == ["a"]
        await ledger._link.request(f"$JS.API.CONSUMER.DELETE.GB_{ledger.address.app}.Mill")
        names = map(str, range(10**6))

        async def is_back() -> bool:
            await ledger.append(grain(f"b{next(names)}"))
            return bool(await ledger.claim("Mill", (0,)))

        await until(is_back)

    run(url, path, [MILL], body)


def test_a_stream_that_was_made_anew_does_not_get_old_acknowledgements(url: str, path: str) -> None:
    """The numbers begin again: an old receipt would acknowledge another event."""

    async def first(ledger: NatsLedger) -> None:
        await ledger.append(grain("a", "b"))
        await next_lease(ledger)
        await ledger._link.request(f"$JS.API.STREAM.DELETE.GB_{ledger.address.app}")

    async def second(ledger: NatsLedger) -> None:
        await ledger.append(grain("c", "d"))
        assert await handle(ledger, 4) == ["a", "b", "c", "d"]

    run(url, path, [MILL], first, lease_s=0.2)
    run(url, path, [MILL], second, lease_s=0.2)
