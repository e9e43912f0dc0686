"""The users that `graphbus nats generate` writes, on real servers: the example `orders` runs with them, and attacks are refused.

Each attack is made with nats-py and the password of an agent, as a program would that has taken over its process.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nats.aio.client import Client

from graphbus_core import build_graph
from graphbus_core.cli import main
from graphbus_core.errors import RunError
from graphbus_core.ledger.envelope import Envelope, encode_envelope
from graphbus_core.ledger.nats import NatsLedger, deploy_stream
from graphbus_core.ledger.seam import Done, Subscription
from graphbus_core.model.config import NatsConfig
from tests.fakes.nats_server import NEWEST, OLDEST, NatsServer
from tests.patience import PATIENCE_S

EXAMPLE = Path(__file__).parents[3] / "examples" / "orders"
CHECKOUT = Subscription(agent="Checkout", handler="Checkout.on_order_placed", topic="/Order/Placed")
PAYMENTS = Subscription(agent="Payments", handler="Payments.on_order_accepted", topic="/Order/Accepted")
PRICING = Subscription(agent="Pricing", handler="Pricing.on_price_asked", topic="/Price/Asked")
BOOKS = Subscription(agent="Books", handler="Books.on_order_paid", topic="/Order/Paid")
ALL = [CHECKOUT, PAYMENTS, PRICING, BOOKS]


def event(name: str, topic: str) -> Envelope:
    return Envelope(id=name, type=topic, time=1.5, data={"n": name})


class Users:
    """A server with the generated users; each password is the user in lower case."""

    def __init__(self, server: NatsServer) -> None:
        self.server = server

    def url(self, name: str) -> str:
        return self.server.url("orders", f"orders.{name}:orders.{name.lower()}")

    async def connect(self, name: str, errors: list[str]) -> Client:
        async def note(error: Exception) -> None:
            errors.append(str(error))

        client = Client()
        address, _, _ = self.url(name).rpartition("/")
        await client.connect(address, error_cb=note, inbox_prefix=f"_INBOX.orders.{name}", allow_reconnect=False)
        return client


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, built, with its users."""
    folder = tmp_path_factory.mktemp("project") / "orders"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns(".graphbus", "__pycache__"))
    build_graph(folder / "orders")
    command = [
        "nats",
        "generate",
        str(folder / ".graphbus"),
        "--ledger",
        "nats://host/orders",
        "-o",
        str(folder / "nats"),
    ]
    assert main(command) == 0
    assert main([*command, "--agents", "Checkout,outside", "-o", str(folder / "other")]) == 0
    return folder


@pytest.fixture(scope="module", params=[NEWEST, OLDEST])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def start_users(kind: str, folder: Path, accounts: Path) -> NatsServer:
    names = ["operator", "outside", "Checkout", "Payments", "Pricing", "Books", "Checkout-outside"]
    passwords = {f"GRAPHBUS_NATS_ORDERS_{name.upper().replace('-', '_')}": f"orders.{name.lower()}" for name in names}
    below = os.path.relpath(accounts, folder)  # the server takes every path as relative to its own file
    return NatsServer(kind, folder, config=f'accounts {{ include "{below}" }}', environment=passwords)


@pytest.fixture
def users(kind: str, orders: Path, tmp_path: Path) -> Iterator[Users]:
    """A server of the users, with the stream and the consumers."""
    with start_users(kind, tmp_path / "nats", orders / "nats" / "accounts.conf") as server:
        found = Users(server)
        assert main(["nats", "deploy", str(orders / ".graphbus"), "--ledger", found.url("operator")]) == 0
        yield found


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not await is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


async def settle_one(ledger: NatsLedger, agent: str, *outgoing: Envelope) -> str:
    """Handle the next event of an agent; return its id."""
    found: list[str] = []

    async def is_done() -> bool:
        for lease in await ledger.claim(agent, (0,)):
            found.append(lease.envelope.id)
            await ledger.settle(lease, Done(), (), outgoing)
        return bool(found)

    await until(is_done)
    return found[0]


# --- what they may do ---


def test_each_agent_does_with_its_user_what_its_class_does(users: Users, tmp_path: Path) -> None:
    """Events, a request with its answer, and a connection that is made again."""

    async def run() -> None:
        found = {
            name: NatsLedger(users.url(name), str(tmp_path / name), agents=[name])
            for name in ("Checkout", "Payments", "Pricing", "Books")
        }
        for each in found.values():
            await each.open(ALL)
        outside = await users.connect("outside", [])
        await outside.request("gb.orders.Order.Placed", encode_envelope(event("a", "/Order/Placed")).encode())
        asking = asyncio.create_task(
            found["Checkout"].ask("Pricing", '{"topic": "/Price/Asked"}', PATIENCE_S, PATIENCE_S)
        )
        async for _ in found["Pricing"].watch():
            if questions := await found["Pricing"].take_questions(["Pricing"]):
                break
        await found["Pricing"].answer(questions[0], '{"value": 7}')
        assert await asking == '{"value": 7}'
        assert await settle_one(found["Checkout"], "Checkout", event("b", "/Order/Accepted")) == "a"
        users.server.kill()
        await asyncio.to_thread(users.server.start)
        assert await settle_one(found["Payments"], "Payments", event("c", "/Order/Paid")) == "b"
        assert await settle_one(found["Books"], "Books") == "c"
        for each in found.values():
            await until(lambda each=each: is_handled(each))  # type: ignore[misc]
            await each.close()
        await outside.close()

    asyncio.run(run())


async def is_handled(ledger: NatsLedger) -> bool:
    return all(each.is_idle for each in await ledger.lag())


def test_an_operator_may_do_everything(users: Users, tmp_path: Path) -> None:
    """All agents in one process, and what happens outside: `graphbus run` without `--only`."""

    async def run() -> None:
        ledger = NatsLedger(users.url("operator"), str(tmp_path / "all"))
        await ledger.open(ALL)
        await ledger.append([event("a", "/Order/Paid")])
        assert await settle_one(ledger, "Books") == "a"
        await ledger.close()

    asyncio.run(run())


def test_one_user_may_run_several_agents_and_publish_from_outside(kind: str, orders: Path, tmp_path: Path) -> None:
    with start_users(kind, tmp_path / "nats", orders / "other" / "accounts.conf") as server:
        users = Users(server)
        asyncio.run(deploy_stream(users.url("operator"), NatsConfig(), ALL))

        async def run() -> None:
            ledger = NatsLedger(users.url("Checkout-outside"), str(tmp_path / "file"), agents=["Checkout"])
            await ledger.open(ALL)
            await ledger.append([event("a", "/Order/Placed")])
            assert await settle_one(ledger, "Checkout") == "a"
            await ledger.close()

        asyncio.run(run())


def test_the_user_of_a_divided_agent_may_run_each_partition(kind: str, orders: Path, tmp_path: Path) -> None:
    """Also a process that finds another one with another file in its place."""
    config = tmp_path / "graphbus.toml"
    config.write_text("[runtime.nats]\npartitions = { Payments = 2 }\n")
    users_of_two = ["nats", "generate", str(orders / ".graphbus"), "--ledger", "nats://host/orders", "-o"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHBUS_CONFIG", str(config))
        assert main([*users_of_two, str(tmp_path / "users")]) == 0
    with start_users(kind, tmp_path / "nats", tmp_path / "users" / "accounts.conf") as server:
        users, two = Users(server), NatsConfig(partitions={"Payments": 2})
        paid = msgspec.structs.replace(PAYMENTS, partition_key="n", partitions=2)
        subscriptions = [CHECKOUT, paid, PRICING, BOOKS]
        asyncio.run(deploy_stream(users.url("operator"), two, subscriptions))

        async def run() -> None:
            found = [
                NatsLedger(
                    users.url("Payments"), str(tmp_path / f"{n}"), agents=["Payments"], settings=two, partition=n % 2
                )
                for n in range(3)
            ]
            for each in found[:2]:
                await each.open(subscriptions)
            with pytest.raises(RunError, match="handles the events of partition 0 of Payments"):
                await found[2].open(subscriptions)
            for each in found:
                await each.close()

        asyncio.run(run())


# --- what is refused ---

ACCEPTED = encode_envelope(event("x", "/Order/Accepted")).encode()
PUBLISHED = {
    "steal the events of another agent": ("$JS.API.CONSUMER.MSG.NEXT.GB_orders.Payments", b"1"),
    "forge an event": ("gb.orders.Order.Paid", encode_envelope(event("x", "/Order/Paid")).encode()),
    "forge an event from outside": ("gb.orders.Order.Placed", encode_envelope(event("x", "/Order/Placed")).encode()),
    "forge an event on a topic that nobody has": ("gb.orders.Other", b"{}"),
    "acknowledge for another agent": ("$JS.ACK.GB_orders.Payments.1.1.1.1.0", b"+ACK"),
    "refuse for another agent": ("$JS.ACK.GB_orders.Payments.1.1.1.1.0", b"+TERM"),
    "ask an agent that the class does not ask": ("gbq.orders.Books.method.balance", b'{"method": "balance"}'),
    "call what the class does not call": ("gbq.orders.Pricing.method.x", b'{"method": "x"}'),
    "answer for another agent": ("_INBOX.orders.Books.Pricing.x.1", b"{}"),
    "delete the stream": ("$JS.API.STREAM.DELETE.GB_orders", b""),
    "purge the stream": ("$JS.API.STREAM.PURGE.GB_orders", b""),
    "delete an event": ("$JS.API.STREAM.MSG.DELETE.GB_orders", b'{"seq": 1}'),
    "read an event": ("$JS.API.STREAM.MSG.GET.GB_orders", b'{"seq": 1}'),
    "read an event directly": ("$JS.API.DIRECT.GET.GB_orders", b'{"seq": 1}'),
    "copy the stream": ("$JS.API.STREAM.CREATE.COPY", b'{"name": "COPY", "sources": [{"name": "GB_orders"}]}'),
    "save the stream": ("$JS.API.STREAM.SNAPSHOT.GB_orders", b'{"deliver_subject": "_INBOX.orders.Checkout.x"}'),
    "change the stream": ("$JS.API.STREAM.UPDATE.GB_orders", b'{"name": "GB_orders", "max_age": 1000000000}'),
    "list the streams": ("$JS.API.STREAM.LIST", b""),
    "delete a consumer": ("$JS.API.CONSUMER.DELETE.GB_orders.Payments", b""),
    "delete its own consumer": ("$JS.API.CONSUMER.DELETE.GB_orders.Checkout", b""),
    "change its own consumer": (
        "$JS.API.CONSUMER.DURABLE.CREATE.GB_orders.Checkout",
        b'{"stream_name": "GB_orders", "config": {"durable_name": "Checkout", "ack_policy": "explicit"}}',
    ),
    "make a consumer of all events": (
        "$JS.API.CONSUMER.CREATE.GB_orders",
        b'{"stream_name": "GB_orders", "config": {"deliver_subject": "_INBOX.orders.Checkout.x"}}',
    ),
    "pause a consumer": ("$JS.API.CONSUMER.PAUSE.GB_orders.Payments", b'{"pause_until": "2999-01-01T00:00:00Z"}'),
}


@pytest.mark.parametrize("attack", PUBLISHED)
def test_an_agent_may_not(attack: str, users: Users) -> None:
    subject, body = PUBLISHED[attack]
    asyncio.run(refused(users, subject, lambda client: client.publish(subject, body, reply="_INBOX.orders.Checkout.x")))


@pytest.mark.parametrize(
    "subject",
    [
        *(
            "gb.>",
            ">",
            "gb.orders.Order.Placed",
            "_INBOX.>",
            "_INBOX.orders.>",
            "_INBOX.orders.Payments.>",
            "_INBOX.*.*.>",
        ),
        *(
            "gbq.>",
            "gbq.orders.Pricing.>",
            "gbq.orders.Pricing.topic.Price.Asked",
            "$JS.>",
            "$JS.ACK.>",
            "$SYS.>",
            "*.>",
        ),
    ],
)
def test_an_agent_may_not_listen_on(subject: str, users: Users) -> None:
    asyncio.run(refused(users, subject, lambda client: client.subscribe(subject)))


async def refused(users: Users, subject: str, attack: Callable[[Client], Awaitable[Any]]) -> None:
    """Let Checkout attack; nothing may have changed then."""
    operator, errors = await users.connect("operator", []), list[str]()
    checkout = await users.connect("Checkout", errors)
    await operator.request("gb.orders.Order.Accepted", ACCEPTED)
    before = await state(operator)
    await attack(checkout)
    await checkout._flush_pending(force_flush=True)  # the PING of `flush` overtakes what is buffered
    await checkout.flush()
    assert len(errors) == 1
    assert "permissions violation" in errors[0]
    assert f'"{subject.lower()}"' in errors[0]
    assert await state(operator) == before
    await checkout.close()
    await operator.close()


async def state(operator: Client) -> list[Any]:
    """Return what the server has: the stream, what it keeps, and how far each consumer is."""
    found = []
    for subject in ("STREAM.LIST", *(f"CONSUMER.INFO.GB_orders.{each.agent}" for each in ALL)):
        answer = json.loads((await operator.request(f"$JS.API.{subject}", b"")).data)
        found.append([_without_times(each) for each in answer.get("streams", [answer])])
    return found


def _without_times(description: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in description.items() if name not in ("ts", "cluster")}


def test_a_process_with_another_password_is_refused(users: Users, tmp_path: Path) -> None:
    url = users.url("Books").replace(":orders.books@", ":wrong@")
    assert "it refuses the credentials" in failing(NatsLedger(url, str(tmp_path / "x"), agents=["Books"])).sentence


def test_a_process_with_the_user_of_another_agent_is_refused_at_once(users: Users, tmp_path: Path) -> None:
    error = failing(NatsLedger(users.url("Payments"), str(tmp_path / "x"), agents=["Books"]))
    assert error.sentence.endswith("it does not allow orders.Payments the subject gbo.orders.Books.")


def failing(ledger: NatsLedger) -> RunError:
    async def run() -> RunError:
        try:
            with pytest.raises(RunError) as caught:
                await ledger.open(ALL)
        finally:
            await ledger.close()
        return caught.value

    return asyncio.run(run())


def test_an_event_that_a_process_may_not_publish_is_refused_at_once(users: Users, tmp_path: Path) -> None:
    """The answer does not take the 5 seconds after which the server is taken to be silent, and the process goes on."""

    async def run() -> None:
        ledger = NatsLedger(users.url("Checkout"), str(tmp_path / "x"), agents=["Checkout"])
        await ledger.open(ALL)
        with pytest.raises(RunError, match=r"it does not allow orders.Checkout the subject gb.orders.Order.Paid"):
            await ledger.append([event("a", "/Order/Paid"), event("b", "/Order/Accepted")])
        with pytest.raises(RunError, match=r"gbq.orders.Books.method.balance"):
            await ledger.ask("Books", '{"method": "balance"}', PATIENCE_S, PATIENCE_S)
        await ledger.append([event("c", "/Order/Accepted")])
        await ledger.close()

    asyncio.run(run())


def test_what_a_handler_may_not_publish_waits_until_it_may(
    kind: str, orders: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing of it is lost, and the log says why."""
    accounts = tmp_path / "accounts.conf"
    text = (orders / "nats" / "accounts.conf").read_text()
    accounts.write_text(text.replace('          "gb.orders.Order.Accepted"\n', ""))
    with start_users(kind, tmp_path / "nats", accounts) as server:
        users = Users(server)
        asyncio.run(deploy_stream(users.url("operator"), NatsConfig(), ALL))

        async def run() -> None:
            ledger = NatsLedger(users.url("Checkout"), str(tmp_path / "x"), agents=["Checkout"])
            payments = NatsLedger(users.url("Payments"), str(tmp_path / "y"), agents=["Payments"])
            await ledger.open(ALL)
            await payments.open(ALL)
            outside = await users.connect("outside", [])
            await outside.request("gb.orders.Order.Placed", encode_envelope(event("a", "/Order/Placed")).encode())
            await settle_one(ledger, "Checkout", event("b", "/Order/Accepted"))
            await until(lambda: says(caplog, "the subject gb.orders.Order.Accepted"))
            await outside.close()
            accounts.write_text(text)
            server.kill()
            await asyncio.to_thread(server.start)
            assert await settle_one(payments, "Payments") == "b"
            await ledger.close()
            await payments.close()

        asyncio.run(run())


async def says(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return text in caplog.text


# --- attacks through others ---


def test_an_event_with_another_topic_than_its_subject_is_refused(
    users: Users, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server checks the subject only. Here both topics go to one agent; on 2.9 an agent may get all of them."""
    also = Subscription(agent="Books", handler="Books.on_accepted", topic="/Order/Accepted")

    async def run() -> None:
        await deploy_stream(users.url("operator"), NatsConfig(), [*ALL, also])
        books = NatsLedger(users.url("Books"), str(tmp_path / "x"), agents=["Books"])
        await books.open([*ALL, also])
        checkout = await users.connect("Checkout", [])
        forged = encode_envelope(event("forged", "/Order/Paid")).encode()
        await checkout.request("gb.orders.Order.Accepted", forged)
        await checkout.request("gb.orders.Order.Accepted", encode_envelope(event("b", "/Order/Accepted")).encode())
        assert await settle_one(books, "Books") == "b"
        await until(lambda: is_handled(books))
        await checkout.close()
        await books.close()

    asyncio.run(run())
    assert "was refused: it says that its topic is /Order/Paid" in caplog.text


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ('{"topic": "/Other"}', "_INBOX.orders.Checkout.Pricing.x.1"),
        ('{"method": "x"}', "_INBOX.orders.Checkout.Pricing.x.1"),
        ("no question", "_INBOX.orders.Checkout.Pricing.x.1"),
        ('{"topic": "/Price/Asked"}', "gb.orders.Order.Paid"),
        ('{"topic": "/Price/Asked"}', ""),
    ],
)
def test_a_question_that_its_subject_does_not_allow_is_not_taken(
    text: str, reply: str, users: Users, tmp_path: Path
) -> None:
    """Nor one whose answer would be something else: it is published with the rights of the agent that answers."""

    async def run() -> None:
        pricing = NatsLedger(users.url("Pricing"), str(tmp_path / "x"), agents=["Pricing"])
        await pricing.open(ALL)
        checkout = await users.connect("Checkout", [])
        subject = "gbq.orders.Pricing.topic.Price.Asked"
        await checkout.publish(subject, text.encode(), reply=reply)
        await checkout.publish(subject, b'{"topic": "/Price/Asked"}', reply="_INBOX.orders.Checkout.Pricing.x.2")
        await checkout.flush()
        taken: list[str] = []

        async def is_taken() -> bool:
            taken.extend(pricing._askers[each.number] for each in await pricing.take_questions(["Pricing"]))
            return bool(taken)

        await until(is_taken)
        assert taken == ["_INBOX.orders.Checkout.Pricing.x.2"]
        await checkout.close()
        await pricing.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "request_to_api",
    ["STREAM.PURGE.GB_orders", "STREAM.DELETE.GB_orders", "STREAM.UPDATE.GB_orders", "CONSUMER.DELETE.GB_orders.Books"],
)
def test_what_an_agent_pulls_reaches_no_api_that_changes_something(request_to_api: str, users: Users) -> None:
    """The server sends it to any subject that the agent names for the answer."""

    async def run() -> None:
        operator, checkout = await users.connect("operator", []), await users.connect("Checkout", [])
        await operator.request("gb.orders.Order.Placed", b"{}")
        before = (await state(operator))[0]
        await checkout.publish("$JS.API.CONSUMER.MSG.NEXT.GB_orders.Checkout", b"1", reply=f"$JS.API.{request_to_api}")
        await until(lambda: is_pulled(operator))
        assert (await state(operator))[0] == before
        await checkout.close()
        await operator.close()

    asyncio.run(run())


async def is_pulled(operator: Client) -> bool:
    answer = await operator.request("$JS.API.CONSUMER.INFO.GB_orders.Checkout", b"")
    return bool(json.loads(answer.data)["num_ack_pending"])


# --- who makes what ---


def test_agents_do_not_make_the_stream_or_a_consumer(kind: str, orders: Path, tmp_path: Path) -> None:
    with start_users(kind, tmp_path / "nats", orders / "nats" / "accounts.conf") as server:
        users = Users(server)
        books = [str(tmp_path / "x"), users.url("Books")]
        error = failing(NatsLedger(books[1], books[0], agents=["Books"]))
        assert "it has no stream GB_orders" in error.sentence
        assert "`graphbus nats deploy`" in error.hint
        asyncio.run(deploy_stream(users.url("operator"), NatsConfig(), [BOOKS]))
        error = failing(NatsLedger(books[1], books[0], agents=["Books"]))
        assert "the consumer Checkout of its stream GB_orders is missing" in error.sentence
        other = Subscription(agent="Books", handler="Books.on_order_paid", topic="/Order/Refused")
        asyncio.run(deploy_stream(users.url("operator"), NatsConfig(), [CHECKOUT, PAYMENTS, PRICING, other]))
        error = failing(NatsLedger(books[1], books[0], agents=["Books"]))
        assert "the consumer Books of its stream GB_orders is missing, or not of this build (`filter_subject`)" in str(
            error
        )
        assert "`graphbus nats deploy`" in error.hint


def test_a_deployment_says_what_it_has_changed(users: Users, orders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["nats", "deploy", str(orders / ".graphbus"), "--ledger", users.url("operator"), "--json"]
    capsys.readouterr()
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out) == {"stream": "GB_orders", "consumers": []}
    command[4] = users.url("Books")
    asyncio.run(deploy_stream(users.url("operator"), NatsConfig(max_bytes=5_000_000), ALL))
    assert main(command) == 0, "what is there, an agent may verify"
