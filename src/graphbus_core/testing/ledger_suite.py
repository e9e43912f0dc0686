"""LedgerSuite: the tests that every engine passes, of this project or yours. They check what the head of `ledger.seam` promises.

    class TestMyLedger(LedgerSuite):
        def make(self, clock):
            return MyLedger(clock, lease_s=self.lease_s)

        def states(self, ledger):
            return ledger.states

pytest runs the class. Each test makes one engine, empty and with the clock of the test. An engine on real time, such as one on a
server, sets `lease_s` to a second or more and lets `let_pass` sleep.
"""

from __future__ import annotations

from unittest import SkipTest

import msgspec

from graphbus_core.ledger.envelope import Envelope
from graphbus_core.ledger.seam import (
    Dead,
    Done,
    Ledger,
    Outcome,
    Parked,
    Released,
    RetryAt,
    StateChange,
    StateConflict,
    Subscription,
)
from graphbus_core.testing.ledger_checks import LedgerChecks, Wakes, check, expect_raised, names_of, on_new_ledger

BLOCKING = Subscription(agent="Stock", handler="Stock.on_order", topic="/Order")
SKIPPING = Subscription(agent="Mail", handler="Mail.on_order", topic="/Order", on_retry="skip")
BY_KEY = Subscription(agent="Bill", handler="Bill.on_order", topic="/Order", partition_key="key", partitions=4)
PATTERNS = [
    Subscription(agent=f"A{n}", handler=f"A{n}.on", topic=topic)
    for n, topic in enumerate(("/A/B", "/A/*", "/A/**", "/*/B"))
]
DEAD = Dead("handler", "ValueError: no", "stock.py:7", "Traceback ...")


class LedgerSuite(LedgerChecks):
    """The promises of an engine as tests; a subclass defines `make` and `states`, see `LedgerChecks`."""

    # --- once, and to whom ---

    @on_new_ledger(BLOCKING)
    async def test_an_event_arrives_as_it_was_appended(self, ledger: Ledger) -> None:
        """Every field of an envelope, its payload included, is the same after the engine."""
        event = Envelope(
            id="a", type="/Order", source="Shop", time=self.clock.time() + 1e-7, data={"n": [1, 2.5, None, True, "ä"]},
            correlationid="r", causationid="c", hops=2, trail=(("/X", "Shop.on_x"),), build="b1",
        )  # fmt: skip
        await ledger.append([event])
        lease = await self.claim(ledger)
        check("the envelope is unchanged", lease.envelope, event)
        first = (BLOCKING, 0, 1, 0, None, "")
        found = (
            lease.subscription,
            lease.partition,
            lease.attempt,
            lease.unfinished,
            lease.failed_at,
            lease.last_error,
        )
        check("a first lease has no past", found, first)
        check("a lease ends later", lease.ends_at > self.clock.time(), True)

    @on_new_ledger(BLOCKING)
    async def test_an_id_is_stored_once(self, ledger: Ledger) -> None:
        """Once: in one call, in a later one, and as an event that a handler publishes; also when the first one is done."""
        await ledger.append([*self.events("aa")])
        await ledger.append(self.events("ab"))
        await ledger.settle(await self.claim(ledger), Done(), outgoing=self.events("bc"))
        await ledger.append(self.events("abc"))
        check("each id is delivered once", await self.drain(ledger), "bc")

    @on_new_ledger(*PATTERNS)
    async def test_patterns_select_events(self, ledger: Ledger) -> None:
        """`*` stands for one segment, `**` for one or more."""
        topics = {"a": "/A/B", "b": "/A/C", "c": "/A/B/C", "d": "/D/B", "e": "/A", "f": "/AA/B"}
        await ledger.append([self.event(name, topic) for name, topic in topics.items()])
        found = [await self.drain(ledger, f"A{n}") for n in range(4)]
        check("the events of /A/B, /A/*, /A/** and /*/B", found, ["a", "ab", "abc", "adf"])

    @on_new_ledger(BLOCKING, SKIPPING)
    async def test_agents_do_not_hold_each_other_back(self, ledger: Ledger) -> None:
        """Each subscription has its own deliveries: what happens to one does not change another."""
        await ledger.append(self.events("ab"))
        await ledger.settle(await self.claim(ledger), DEAD)
        await self.claim(ledger)
        check("the other agent gets all events", await self.drain(ledger, "Mail"), "ab")

    # --- order ---

    @on_new_ledger(BLOCKING, Subscription(agent="Stock", handler="Stock.audit", topic="/**"))
    async def test_handlers_of_an_agent_share_one_order(self, ledger: Ledger) -> None:
        """Order: an event comes to all handlers of an agent before the next event comes to any."""
        await ledger.append(self.events("ab"))
        await ledger.append([self.event("x", "/Other"), self.event("c")])
        check("the order is that of the events", await self.drain(ledger), "aabbxcc")

    @on_new_ledger(BLOCKING)
    async def test_a_partition_has_one_lease_at_a_time(self, ledger: Ledger) -> None:
        """A delivery holds back those behind it until it is settled."""
        await ledger.append(self.events("ab"))
        first = await self.claim(ledger)
        check("nothing while the first is leased", await self.claim_names(ledger, limit=5), "")
        await ledger.extend(first)
        check("nothing while the first is leased", await self.claim_names(ledger, limit=5), "")
        await ledger.settle(first, Done())
        check("the next one when it is settled", await self.claim_names(ledger), "b")

    @on_new_ledger(BLOCKING)
    async def test_one_claim_may_take_several(self, ledger: Ledger) -> None:
        """`limit` deliveries that follow one another; the partition is taken until all are settled."""
        await ledger.append(self.events("abcde"))
        check("no lease without a limit above 0", await self.claim_names(ledger, limit=0), "")
        leases = await ledger.claim("Stock", (0,), 3)
        check("the first three in order", names_of(leases), "abc")
        for lease in leases:
            check("nothing while one is leased", await self.claim_names(ledger), "")
            await ledger.settle(lease, Done())
        check("then the next", await self.claim_names(ledger, limit=3), "de")

    @on_new_ledger(BY_KEY)
    async def test_order_holds_for_each_key(self, ledger: Ledger) -> None:
        """Events with one key are in one partition, in order; partitions do not wait for each other; others are not given."""
        keys = [f"key {n}" for n in range(12)]
        await ledger.append([self.event(f"{key}/{n}", key=key) for n in range(3) for key in keys])
        held = await self.claim(ledger, "Bill", range(4))
        order: dict[str, str] = {held.envelope.data["key"]: "0"}
        for partition in range(4):
            while leases := await ledger.claim("Bill", [partition]):
                key, number = leases[0].envelope.id.split("/")
                wanted = BY_KEY.partition_of(leases[0].envelope)
                check("a key is always in its partition", leases[0].partition, wanted)
                check("only partitions that were asked for", leases[0].partition, partition)
                order[key] = order.get(key, "") + number
                await ledger.settle(leases[0], Done())
        free = {key: "012" for key in keys if BY_KEY.partition_of(self.event("", key=key)) != held.partition}
        check("all of the other partitions, in order", order, {held.envelope.data["key"]: "0"} | free)

    @on_new_ledger(BY_KEY)
    async def test_several_partitions_are_claimed_in_the_order_of_events(self, ledger: Ledger) -> None:
        """A claim over several partitions begins with the oldest event, so that none waits for ever."""
        names = "abcdefgh"
        await ledger.append([self.event(name, key=name) for name in names])
        leases = await ledger.claim("Bill", range(4), 5)
        check("the oldest five", names_of(leases), names[:5])

    @on_new_ledger(BY_KEY)
    async def test_order_holds_for_each_key_among_processes(self, ledger: Ledger) -> None:
        """Processes that claim in turns, one of which loses a lease, and one of which claims several, keep the order of a key."""
        processes = await self.open_processes(ledger, BY_KEY)
        keys = [f"key {n}" for n in range(12)]
        for turn in range(3):
            await processes[turn % len(processes)][0].append([self.event(f"{key}/{turn}", key=key) for key in keys])
        order: dict[str, str] = {}
        is_lost = False
        while len("".join(order.values())) < 3 * len(keys):
            taken = [(each, await each.claim("Bill", partitions, 2)) for each, partitions in processes]
            check("there is always something to claim", any(leases for _, leases in taken), True)
            for each, leases in taken:
                if leases and not is_lost:
                    is_lost = True
                    await self.let_pass(self.lease_s)
                    break
                for lease in leases:
                    key, number = lease.envelope.id.split("/")
                    order[key] = order.get(key, "") + number
                    await each.settle(lease, Done())
        check("each key has its order", order, dict.fromkeys(keys, "012"))
        for each, _ in processes:
            await each.close()

    # --- retries, releases, dead letters ---

    @on_new_ledger(BLOCKING)
    async def test_a_retry_blocks_those_behind(self, ledger: Ledger) -> None:
        """`block`: nothing until the retry is due; then it comes first, with its past."""
        await ledger.append(self.events("ab"))
        failed_at = self.clock.time()
        await ledger.settle(await self.claim(ledger), RetryAt(self.clock.time() + 3 * self.lease_s, "boom"))
        await self.let_pass(2 * self.lease_s)
        check("nothing before the retry", await self.claim_names(ledger, limit=2), "")
        await self.let_pass(self.lease_s)
        lease = await self.claim(ledger)
        found = (lease.envelope.id, lease.attempt, lease.unfinished, lease.last_error)
        check("the retry comes first, as attempt 2", found, ("a", 2, 0, "boom"))
        await ledger.settle(lease, RetryAt(self.clock.time()))
        lease = await self.claim(ledger)
        check("it says when it failed first", abs((lease.failed_at or 0) - failed_at) < self.lease_s, True)
        await ledger.settle(lease, Done())
        check("then those behind", await self.drain(ledger), "b")

    @on_new_ledger(SKIPPING)
    async def test_a_retry_may_let_others_pass(self, ledger: Ledger) -> None:
        """`skip`: later deliveries are claimed meanwhile; when it is due, it is the first again."""
        await ledger.append(self.events("abcd"))
        await ledger.settle(await self.claim(ledger, "Mail"), RetryAt(self.clock.time() + self.lease_s))
        lease = await self.claim(ledger, "Mail")
        check("the next one passes", lease.envelope.id, "b")
        await ledger.settle(lease, Done())
        await self.let_pass(self.lease_s)
        check("the retry is first again", await self.drain(ledger, "Mail"), "acd")

    @on_new_ledger(BLOCKING, Subscription(agent="Stock", handler="Stock.audit", topic="/Order", on_retry="skip"))
    async def test_each_handler_says_whether_its_retry_blocks(self, ledger: Ledger) -> None:
        """Two handlers of one agent: only the retry of the first one blocks."""
        await ledger.append(self.events("ab"))
        later = self.clock.time() + 5 * self.lease_s
        await ledger.settle(await self.claim(ledger), Done())
        await ledger.settle(await self.claim(ledger), RetryAt(later))
        lease = await self.claim(ledger)
        check("a retry with `skip` lets b pass", (lease.envelope.id, lease.subscription), ("b", BLOCKING))
        await ledger.settle(lease, RetryAt(later))
        check("a retry with `block` does not", await self.claim_names(ledger), "")

    @on_new_ledger(BLOCKING)
    async def test_a_released_delivery_is_no_attempt(self, ledger: Ledger) -> None:
        """Released: it is the next again, at once, and counted neither as an attempt nor as unfinished."""
        await ledger.append(self.events("ab"))
        await ledger.settle(await self.claim(ledger), Released())
        lease = await self.claim(ledger)
        check("the same one as before", (lease.envelope.id, lease.attempt, lease.unfinished), ("a", 1, 0))

    @on_new_ledger(BLOCKING)
    async def test_dead_and_parked_deliveries_do_not_come_again(self, ledger: Ledger) -> None:
        """Dead and Parked: they are counted, never claimed, and hold nothing back."""
        await ledger.append(self.events("abc"))
        await ledger.settle(await self.claim(ledger), DEAD)
        await ledger.settle(await self.claim(ledger), Parked("The build does not know it."))
        await self.let_pass(3 * self.lease_s)
        check("those behind are free", await self.drain(ledger), "c")
        check("they are counted", await self.counts(ledger), {"Stock": (0, 0, 0, 1, 1)})

    # --- leases and fencing ---

    @on_new_ledger(BLOCKING)
    async def test_a_lease_that_ends_is_handed_out_again(self, ledger: Ledger) -> None:
        """Honesty: not before its end; with a higher token and `unfinished` counted, and before those behind it."""
        await ledger.append(self.events("ab"))
        first = await self.claim(ledger)
        await self.let_pass(0.6 * self.lease_s)
        first = await ledger.extend(first)
        await self.let_pass(0.6 * self.lease_s)
        check("an extended lease lasts", await self.claim_names(ledger), "")
        await self.let_pass(0.6 * self.lease_s)
        second = await self.claim(ledger)
        found = (second.envelope.id, second.attempt, second.unfinished, second.token > first.token)
        check("the same one, with the lease counted", found, ("a", 1, 1, True))
        await self.let_pass(self.lease_s)
        check("every ended lease is counted", (await self.claim(ledger)).unfinished, 2)

    @on_new_ledger(BLOCKING)
    async def test_an_older_lease_settles_nothing(self, ledger: Ledger) -> None:
        """Fencing: each outcome is refused, and neither states nor outgoing events of it are applied."""
        old, new = await self.lose_lease(ledger)
        changes = [StateChange("Stock", {"n": "1"})]
        outcomes: list[Outcome] = [Done(), RetryAt(0.0), DEAD, Parked("why"), Released()]
        for outcome in outcomes:
            await self.expect_lost(ledger.settle(old, outcome, changes, self.events("b")))
        check("its states are not applied", self.states(ledger).find("Stock", "n"), (None, 0))
        check("its events are not stored, and the lease is held", await self.claim_names(ledger, limit=2), "")
        await ledger.settle(new, Done())
        check("its events are not stored", await self.drain(ledger), "")

    @on_new_ledger(BLOCKING)
    async def test_an_older_lease_extends_nothing(self, ledger: Ledger) -> None:
        """Fencing: the older lease is refused; the newer one can be extended and settled, and ends when it is not."""
        old, new = await self.lose_lease(ledger)
        await self.expect_lost(ledger.extend(old))
        await self.let_pass(0.6 * self.lease_s)
        new = await ledger.extend(new)
        await self.expect_lost(ledger.extend(old))
        await ledger.settle(new, Done())

    @on_new_ledger(BLOCKING)
    async def test_a_settled_lease_is_over(self, ledger: Ledger) -> None:
        """Fencing: a lease is settled once, whatever its outcome was."""
        outcomes: list[Outcome] = [Done(), DEAD, Parked("why"), Released(), RetryAt(0.0)]
        for name, outcome in zip("abcde", outcomes, strict=True):
            await ledger.append(self.events(name))
            lease = await self.claim(ledger)
            await ledger.settle(lease, outcome)
            await self.expect_lost(ledger.settle(lease, Done()))
            await self.expect_lost(ledger.extend(lease))
            await self.drain(ledger)

    @on_new_ledger(BLOCKING)
    async def test_the_rest_of_an_ended_claim_is_lost_with_it(self, ledger: Ledger) -> None:
        """When another worker has the first of several leases, the old worker can no longer take up the later ones."""
        await ledger.append(self.events("ab"))
        _, rest = await ledger.claim("Stock", (0,), 2)
        await self.let_pass(self.lease_s)
        first = await self.claim(ledger)
        await self.expect_lost(ledger.extend(rest))
        await ledger.settle(first, Done())
        lease = await self.claim(ledger)
        check("its end is counted", (lease.envelope.id, lease.unfinished), ("b", 1))

    # --- atomicity ---

    @on_new_ledger(BLOCKING, Subscription(agent="Out", handler="Out.on", topic="/Out"))
    async def test_outgoing_events_and_states_come_with_every_outcome(self, ledger: Ledger) -> None:
        """Atomicity: what a handler has published and changed is there when `settle` returns."""
        outcomes: list[Outcome] = [Done(), DEAD, Parked("why"), RetryAt(self.clock.time() + self.lease_s)]
        for number, outcome in enumerate(outcomes, 1):
            await ledger.append([self.event(f"in {number}")])
            state = [StateChange("Stock", {"n": str(number), "m": None}), StateChange("Out", {"k": "[]"})]
            await ledger.settle(await self.claim(ledger), outcome, state, [self.event(str(number), "/Out")])
            check("the state is written", self.states(ledger).find("Stock", "n")[0], str(number))
            check("also that of another agent", self.states(ledger).find("Out", "k")[0], "[]")
        check("the events are delivered in order", await self.drain(ledger, "Out"), "1234")
        await self.let_pass(self.lease_s)
        await ledger.settle(await self.claim(ledger), Done(), [StateChange("Stock", {"n": None})])
        check("a key can be deleted", self.states(ledger).keys("Stock"), [])

    @on_new_ledger(BLOCKING, Subscription(agent="Out", handler="Out.on", topic="/Out"))
    async def test_a_conflict_applies_nothing(self, ledger: Ledger) -> None:
        """Atomicity: StateConflict leaves states, events and the lease as they were; the lease can still be settled."""
        await ledger.append(self.events("a"))
        lease = await self.claim(ledger)
        states = self.states(ledger)
        states.write("Stock", {"n": "1"})
        version = states.find("Stock", "n")[1]
        stale = [
            StateChange("Stock", {"n": "2"}, {"n": 0}),
            StateChange("Stock", {"n": "2"}, {"n": version + 1}),
            StateChange("Stock", {"n": "2"}, {"n": version, "new": 1}),
            StateChange("Stock", {"n": "2"}, {}, frozenset()),
            StateChange("Stock", {}, {"n": version + 1}),
        ]
        for change in stale:
            attempt = ledger.settle(lease, Done(), [StateChange("Out", {"k": "1"}), change], [self.event("o", "/Out")])
            await expect_raised(StateConflict, attempt)
        check("no state is written", (states.find("Stock", "n"), states.keys("Out")), (("1", version), []))
        check("no event is stored", await self.drain(ledger, "Out"), "")
        check("the lease is held", await self.claim_names(ledger), "")
        good = StateChange("Stock", {"n": "2"}, {"n": version, "new": 0}, frozenset({"n"}))
        await ledger.settle(lease, Done(), [good])
        check("what was read is still true: written", states.find("Stock", "n")[0], "2")

    # --- subscriptions that come and go ---

    @on_new_ledger(BLOCKING, SKIPPING)
    async def test_deliveries_of_a_removed_subscription_are_parked(self, ledger: Ledger) -> None:
        """They are counted until the subscription is back; then they are open again in their order. Later events pass it by."""
        await ledger.append(self.events("abc"))
        lease = await self.claim(ledger)
        await ledger.open([SKIPPING])
        check("they are parked", (await self.counts(ledger)).get("Stock"), (0, 0, 0, 3, 0))
        await self.expect_lost(ledger.settle(lease, Done()))
        await ledger.append(self.events("d"))
        check("nothing to claim", await self.claim_names(ledger), "")
        check("other subscriptions go on", await self.drain(ledger, "Mail"), "abcd")
        await ledger.open([BLOCKING, SKIPPING])
        await ledger.append(self.events("e"))
        check("they are open again", await self.drain(ledger), "abce")

    @on_new_ledger(BLOCKING)
    async def test_a_changed_subscription_keeps_its_deliveries(self, ledger: Ledger) -> None:
        """A build may change partitions and `on_retry`: what is open follows, so that no delivery is out of reach."""
        await ledger.append([self.event(name, key=name) for name in "abcdefgh"])
        await ledger.settle(await self.claim(ledger), RetryAt(self.clock.time() + self.lease_s))
        wide = Subscription(
            agent="Stock", handler="Stock.on_order", topic="/Order", partition_key="key", partitions=3, on_retry="skip"
        )
        await ledger.open([wide])
        found = {partition: await self.drain(ledger, "Stock", [partition]) for partition in range(3)}
        wanted = {
            n: "".join(name for name in "bcdefgh" if wide.partition_of(self.event(name, key=name)) == n)
            for n in range(3)
        }
        check("each is in its new partition, and the retry blocks none", found, wanted)
        await ledger.open([BLOCKING])
        await self.let_pass(self.lease_s)
        check("and back", await self.drain(ledger), "a")

    @on_new_ledger(BLOCKING)
    async def test_what_is_parked_is_taken_up_in_its_place(self, ledger: Ledger) -> None:
        """`resume`: deliveries that wait for a build are handed out again when it asks, before those behind them."""
        await ledger.append([msgspec.structs.replace(self.event(name), build=name.upper()) for name in "abc"])
        for _ in "ab":
            await ledger.settle(await self.claim(ledger), Parked("a newer build is needed"))
        check("no delivery of this build", await ledger.resume("X"), 0)
        check("one of the other build", await ledger.resume("B"), 1)
        check("in its place", await self.claim_names(ledger, limit=2), "bc")
        check("the rest", await ledger.resume(), 1)

    @on_new_ledger(BLOCKING)
    async def test_dead_letters_can_be_read_and_forgotten(self, ledger: Ledger) -> None:
        """`dead_letters`: with the event, the error and the times; `forget` forgets these and nothing else."""
        await ledger.append(self.events("ab"))
        first = await self.claim(ledger)
        await ledger.settle(first, Dead("handler", "no", "file.py:3", "trace"))
        letters = await ledger.dead_letters(["Stock"])
        check("there is one", len(letters), 1)
        number, letter = letters[0]
        check("the event", letter.event.event_id, "a")
        check("its handler", letter.subscription, first.subscription.handler)
        texts = (letter.reason, letter.error, letter.place, letter.traceback, letter.attempts)
        check("what went wrong", texts, ("handler", "no", "file.py:3", "trace", 1))
        check("of other agents there are none", await ledger.dead_letters(["Mail"]), [])
        second = await self.claim(ledger)
        await ledger.forget([second.delivery, number])
        await ledger.settle(second, Done())
        check("it is forgotten", await ledger.dead_letters(["Stock"]), [])

    # --- what people look at ---

    @on_new_ledger(BLOCKING, SKIPPING, BY_KEY)
    async def test_lag_counts_what_is_open(self, ledger: Ledger) -> None:
        """`lag`: exact numbers for each subscription, and the age of the oldest waiting event."""
        await ledger.append(self.events("ab"))
        await self.let_pass(2 * self.lease_s)
        await ledger.append(self.events("cd"))
        retry_at = self.clock.time() + 2 * self.lease_s
        for outcome in (RetryAt(retry_at), Done(), DEAD):
            await ledger.settle(await self.claim(ledger, "Mail"), outcome)
        await self.claim(ledger, "Mail")
        await self.claim(ledger)
        wanted = {"Stock": (3, 1, 0, 0, 0), "Mail": (0, 1, 1, 0, 1), "Bill": (4, 0, 0, 0, 0)}
        check("the numbers", await self.counts(ledger), wanted)
        ages = {each.subscription: each.oldest_s for each in await ledger.lag()}
        near = {name: abs(age - 2 * self.lease_s) < self.lease_s for name, age in ages.items()}
        check("the age of the oldest waiting event", near, {BLOCKING: True, SKIPPING: False, BY_KEY: True})
        await self.let_pass(2 * self.lease_s)
        wanted = {"Stock": (4, 0, 0, 0, 0), "Mail": (2, 0, 0, 0, 1), "Bill": (4, 0, 0, 0, 0)}
        check("what is due or was not settled waits", await self.counts(ledger), wanted)
        for agent in ("Stock", "Mail", "Bill"):
            await self.drain(ledger, agent, range(4))
        check("what is done is not counted", await self.counts(ledger), {"Mail": (0, 0, 0, 0, 1)})

    # --- watching ---

    @on_new_ledger(BLOCKING)
    async def test_watch_tells_of_new_and_freed_deliveries(self, ledger: Ledger) -> None:
        """`watch` yields at once, then for events that are appended or published by a handler, and when a lease is given back."""
        wakes = Wakes(ledger.watch(), self.patience_s)
        await wakes.expect("the start")
        await wakes.expect_after("an append", ledger.append(self.events("ab")))
        lease = await self.claim(ledger)
        await wakes.expect_after("a delivery is given back", ledger.settle(lease, Released()))
        lease = await self.claim(ledger)
        await wakes.expect_after("those behind are free", ledger.settle(lease, Done()))
        lease = await self.claim(ledger)
        await wakes.expect_after("an outgoing event", ledger.settle(lease, Done(), outgoing=self.events("c")))
        await wakes.close()

    @on_new_ledger(BLOCKING)
    async def test_watch_tells_of_time(self, ledger: Ledger) -> None:
        """`watch` yields when a retry is due and when a lease ends, to each watcher."""
        await ledger.append(self.events("a"))
        watchers = [Wakes(ledger.watch(), self.patience_s) for _ in range(2)]
        await ledger.settle(await self.claim(ledger), RetryAt(self.clock.time() + self.lease_s))
        for wakes in watchers:
            await wakes.drain()
        await self.let_pass(self.lease_s)
        for wakes in watchers:
            await wakes.expect("a retry is due")
        await self.claim(ledger)
        for wakes in watchers:
            await wakes.drain()
        await self.let_pass(self.lease_s)
        for wakes in watchers:
            await wakes.expect("a lease ends")
            await wakes.close()

    # --- safety ---

    @on_new_ledger(BLOCKING, SKIPPING)
    async def test_what_was_stored_survives_a_crash(self, ledger: Ledger) -> None:
        """Safety: another process finds events, outcomes and leases as they were when the calls returned."""
        await ledger.append(self.events("abc"))
        await ledger.settle(await self.claim(ledger), Done(), [StateChange("Stock", {"n": "1"})], self.events("d"))
        await self.claim(ledger)
        again = self.reopen(ledger)
        if again is None:
            raise SkipTest("nothing survives a crash with this engine, as it says")
        check("the lease of the dead process still counts", await self.claim_names(again), "")
        check("the state is there", self.states(again).find("Stock", "n")[0], "1")
        await again.append(self.events("abcd"))
        await self.let_pass(self.lease_s)
        check("nothing is lost or stored again", await self.drain(again), "bcd")
        await again.close()
