"""What a page of the view may have to show: a shop in trouble, a crowd, hostile names, a negotiation, a comparison."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from graphbus_core.view import messages as m
from graphbus_core.view.layout import Gaps, curve_of, lay_out_graph, node_width

NOW = 1_764_338_400.0
ORIGIN = m.Origin(
    kind="run", name="orders", server="one", is_live=True, has_payloads=True, may_replay=True, redacted=("card",)
)
HOSTILE = '<img src=x onerror="window.hacked=1">"\'&\u202e\x00 ${7*7} </script>' + "w" * 120


def picture(
    edges: Sequence[tuple[str, str, str]],
    origin: m.Origin = ORIGIN,
    groups: dict[str, str] | None = None,
    verdicts: dict[str, m.Verdict] | None = None,
) -> m.GraphPicture:
    """A graph of `(source, target, topic)`; an agent's handler of `/Order/Paid` is `on_paid`."""
    names = list(dict.fromkeys(name for edge in edges for name in edge[:2]))
    group_of = {name: (groups or {}).get(name, "shop") for name in names}
    boxes, lines, size = _drawn(names, [(*edge, handler_of(edge[1], edge[2])) for edge in edges], verdicts or {})
    agents = [
        m.AgentBox(
            name=name,
            group="" if name == m.OUTSIDE else group_of[name],
            module=f"{group_of[name]}.{name.lower()}",
            file="" if name == m.OUTSIDE else f"agents/{name.lower()[:20]}.py",
            line=12,
            handlers=tuple(
                m.Handler(name=handler_of(name, topic), topics=(topic,), line=20)
                for _, target, topic in edges
                if target == name and topic
            ),
            doc="Everything outside." if name == m.OUTSIDE else "Keeps an eye on its part of the orders.",
            **dict(zip(("x", "y", "width", "height"), boxes[name], strict=True)),
        )
        for name in names
    ]
    inner = list(dict.fromkeys(group_of[name] for name in names if name != m.OUTSIDE))
    pairs = {
        (group_of[source], group_of[target], "", ())
        for source, target, _ in edges
        if m.OUTSIDE not in (source, target) and group_of[source] != group_of[target]
    }
    group_boxes, group_lines, group_size = _drawn(inner, sorted(pairs), {})
    return m.GraphPicture(
        origin=origin,
        width=size[0],
        height=size[1],
        agents=tuple(agents),
        lines=lines,
        topics=tuple(
            m.TopicInfo(name=topic, publishers=(), subscribers=(), is_external=False)
            for topic in dict.fromkeys(edge[2] for edge in edges if edge[2])
        ),
        groups=m.Groups(
            width=group_size[0],
            height=group_size[1],
            boxes=tuple(
                m.Group(
                    name=name,
                    agents=tuple(each for each in names if group_of[each] == name and each != m.OUTSIDE),
                    **dict(zip(("x", "y", "width", "height"), group_boxes[name], strict=True)),
                )
                for name in inner
            ),
            lines=group_lines,
        ),
    )


def handler_of(agent: str, topic: str) -> str:
    return f"{agent}.on_{topic.rpartition('/')[2].lower()}"


def _drawn(names: Sequence[str], edges: Sequence[tuple], verdicts: dict[str, m.Verdict]) -> tuple:  # type: ignore[type-arg]
    widths = {name: node_width(name, 150, 26) for name in names}
    gaps = Gaps(190, 40) if len(names) <= 24 else Gaps()
    drawn = lay_out_graph(names, [edge[:2] for edge in edges], widths, gaps=gaps, height=56)
    lines = tuple(
        m.Line(
            source=source,
            target=target,
            kind="topic" if topic or not handler else "call",
            topic=topic,
            verdict=verdicts.get(topic, "proven"),
            doubt="The payload is not known." if topic in verdicts else "",
            handlers=(handler,) if isinstance(handler, str) else (),
            curve=curve_of(drawn.ways[source, target]),
        )
        for source, target, topic, handler in edges
    )
    return drawn.boxes, lines, (drawn.width, drawn.height)


SHOP = (
    (m.OUTSIDE, "Checkout", "/Order/Placed"),
    ("Checkout", "Payments", "/Order/Accepted"),
    ("Checkout", "Pricing", "/Price/Asked"),
    ("Payments", "Books", "/Order/Paid"),
    ("Payments", "Desk", "/Order/Refunded"),
    ("Books", "Desk", "/Ledger/Closed"),
)
DOUBTS: dict[str, m.Verdict] = {"/Order/Refunded": "unknown", "/Ledger/Closed": "broken"}


def shop(origin: m.Origin = ORIGIN) -> m.GraphPicture:
    return picture(SHOP, origin, verdicts=DOUBTS)


def orders(count: int, start: float = NOW) -> tuple[m.Delivery, ...]:
    """Deliveries of `count` orders; every thirteenth is refused by the bank at first, every fortieth for good."""
    return tuple(sorted(_orders(count, start), key=lambda each: each.seq))


def _orders(count: int, start: float) -> Iterator[m.Delivery]:
    chance = random.Random(7)
    seq = 0
    for number in range(1, count + 1):
        at, root, before, by = start + number * 0.05, f"{number:032x}", "", ""
        for place, (source, target, topic) in enumerate(SHOP[:2] + SHOP[3:4]):
            handler = handler_of(target, topic)
            fails = (3 if number % 40 == 0 else 1 if number % 13 == 0 else 0) if target == "Payments" else 0
            published = at
            for attempt in range(1, min(3, fails + 1) + 1):
                seq += 1
                took = chance.lognormvariate(-6, 1)
                failed = attempt <= fails
                at += chance.uniform(0.0002, 0.004) + (attempt > 1) * 0.1 * attempt
                yield m.Delivery(
                    seq=seq,
                    event_id=f"{place or ''}{root}"[-32:],
                    causation_id=before,
                    correlation_id=root,
                    topic=topic,
                    src="" if source == m.OUTSIDE else source,
                    published_by=by,
                    published=published,
                    handler=handler,
                    attempt=attempt,
                    started=at,
                    duration_s=took,
                    outcome="failed" if failed else "done",
                    error=f"BankRefused: the line to the bank is down for card {number % 7}" if failed else "",
                    key=f"order-{number}",
                    has_payload=True,
                )
                at += took
            before, by = f"{place or ''}{root}"[-32:], handler
            if fails == 3:
                break


def tree_of(deliveries: Sequence[m.Delivery], event_id: str) -> m.EventTree:
    """The tree around an event of `orders`."""
    root = next(each.correlation_id for each in deliveries if each.event_id == event_id)
    own = [each for each in deliveries if each.correlation_id == root]
    events = {
        each.event_id: m.TreeEvent(
            event_id=each.event_id,
            causation_id=each.causation_id,
            topic=each.topic,
            src=each.src,
            published_by=each.published_by,
            published=each.published,
            key=each.key,
            payload={"order_id": each.key, "card": "(redacted)", "lines": [{"sku": "mug", "qty": 2}]},
        )
        for each in own
    }
    dead = [each for each in own if each.attempt == 3 and each.outcome == "failed"]
    return m.EventTree(
        event_id=event_id,
        root=root,
        events=tuple(events.values()),
        deliveries=tuple(own),
        dead_letters=tuple(letter_of(each) for each in dead),
    )


def letter_of(each: m.Delivery) -> m.DeadLetter:
    return m.DeadLetter(
        id=f"letter-{each.seq}",
        event_id=each.event_id,
        correlation_id=each.correlation_id,
        topic=each.topic,
        handler=each.handler,
        reason="handler",
        error=each.error,
        place="agents/payments.py:27",
        traceback='Traceback (most recent call last):\n  File "agents/payments.py", line 27\nBankRefused',
        attempts=each.attempt,
        first_at=each.started - 0.5,
        at=each.started + each.duration_s,
    )


SOURCE = m.SourceText(
    name="Payments.on_accepted",
    file="agents/payments.py",
    first=22,
    lines=(
        '    @subscribe("/Order/Accepted", retries=2, key="order_id")',
        "    async def on_accepted(self, order: Order) -> None:",
        '        """Charge the card of an order; the bank may be away for a while."""',
        '        amount = order["total"]',
        '        if order["card"] is None:',
        "            raise BankRefused(await self.bank.reason_of(order))",
        '        receipt = await self.bank.charge(order["card"], amount)',
        '        self.publish("/Order/Paid", {"order_id": order["order_id"], "receipt": receipt})',
    ),
    failing=(27,),
    why=(
        m.Decision(
            session="S003",
            proposal="P002",
            agent="Payments",
            title="Read 'total' instead of 'amount'",
            reason="Checkout sends 'total'; the key 'amount' was never there.",
            consensus="Accepted 2 to 0",
            commit="3f2a91c4d5e6",
            first=25,
            last=26,
            votes=(
                m.Vote(evaluator="Checkout", decision="accept", is_arbiter=False, reason="It fixes GB003 on my side."),
                m.Vote(evaluator="Books", decision="abstain", is_arbiter=False, reason="It does not concern me."),
            ),
        ),
    ),
)


def crowd(agents: int = 100) -> m.GraphPicture:
    """Agents in ten groups; each sends to two of its group or of the next two."""
    chance = random.Random(3)
    names = [f"{kind}{number:02}" for kind in KINDS for number in range(agents // 10)]
    groups = {name: f"fleet.{name[:-2].lower()}" for name in names}
    edges = [
        (name, names[min(len(names) - 1, place + chance.randint(1, 22))], f"/{name}/Done")
        for place, name in enumerate(names[:-1])
        for _ in range(2)
    ]
    return picture(list(dict.fromkeys(edge for edge in edges if edge[0] != edge[1])), groups=groups)


KINDS = ("Harbour", "Crane", "Truck", "Depot", "Router", "Customs", "Invoice", "Pilot", "Weather", "Radio")


def hostile() -> m.GraphPicture:
    origin = m.Origin(kind="run", name=HOSTILE, server="one", is_live=True, note=HOSTILE)
    edges = [(HOSTILE, "Victim", HOSTILE), ("Victim", f"b{HOSTILE}", f"/x{HOSTILE}")]
    return picture(edges, origin, groups={"Victim": HOSTILE})


def tick(
    at: float, handlers: dict[str, m.Counts], deliveries: Sequence[m.Delivery] = (), left_out: int = 0, dead: int = 0
) -> m.Tick:
    return m.Tick(
        at=at,
        deliveries=tuple(deliveries),
        left_out=left_out,
        first=deliveries[0].seq if deliveries else 0,
        last=deliveries[-1].seq if deliveries else 0,
        published=sum(each.delivered for each in handlers.values()),
        queued=0,
        dead_letters=dead,
        handlers=handlers,
    )


def counts_after(deliveries: Sequence[m.Delivery], times: int = 1) -> dict[str, m.Counts]:
    """The counts of all handlers after these deliveries, each of which stands for so many."""
    found: dict[str, m.Counts] = {}
    for each in deliveries:
        key = f"{each.handler} <- {each.topic}"
        before = found.get(key, m.Counts())
        found[key] = m.Counts(
            delivered=before.delivered + times,
            failed=before.failed + (each.outcome == "failed"),
            dead=before.dead + (each.outcome == "failed" and each.attempt == 3),
            waiting=4 if "Payments" in each.handler else 0,
            lag_s=1.5 if "Payments" in each.handler else 0,
        )
    return found


RUNGS = ("scope", "apply", "parse", "capability", "contract", "import", "tests", "calls", "coverage")


def climb(failed_at: int | None = None, waiting_at: int | None = None) -> tuple[m.Rung, ...]:
    def status(number: int) -> str:
        if failed_at is not None and number >= failed_at:
            return "failed" if number == failed_at else "not_run"
        if waiting_at is not None and number >= waiting_at:
            return "running" if number == waiting_at else "waiting"
        return "passed"

    return tuple(
        m.Rung(
            rung=f"G{number}",
            name=name,
            status=status(number),  # type: ignore[arg-type]
            message="GB004: Checkout sends no 'total' to '/Order/Accepted'." if number == failed_at else "",
        )
        for number, name in enumerate(RUNGS)
    )


def proposal(
    number: int, stage: str, status: str, checks: tuple[tuple[m.Rung, ...], ...], *votes: m.Vote
) -> m.ProposalPicture:
    return m.ProposalPicture(
        id=f"P{number:03}",
        src=("Payments", "Checkout", "Books", "Desk")[number % 4],
        title="Read 'in_stock' instead of 'instock' in Desk.on_closed",
        reason="The publisher sends 'in_stock'; 'instock' was never there.",
        round=1 + number // 3,
        files=("agents/desk.py",),
        affects=("Books", "Payments"),
        status=status,  # type: ignore[arg-type]
        stage=stage,  # type: ignore[arg-type]
        checks=checks,
        votes=votes,
        steps=("The workspace was changed under it; it was merged.",) if number == 2 else (),
        outcome="Consensus (2/2)." if status == "accepted" else "",
        diff="--- a/agents/desk.py\n+++ b/agents/desk.py\n@@ -3 +3 @@\n-    if event['instock']:\n+    if event['in_stock']:",
        cost_usd=0.0123,
    )


def negotiation(state: str = "running") -> m.NegotiationPicture:
    yes = m.Vote(evaluator="Books", decision="accept", is_arbiter=False, reason="It fixes GB003 on my side.")
    no = m.Vote(evaluator="Checkout", decision="reject", is_arbiter=False, reason="My payload would lose a field.")
    judge = m.Vote(evaluator="Desk", decision="counter", is_arbiter=True, reason="Rename it on both sides.")
    return m.NegotiationPicture(
        session="S004",
        state=state,  # type: ignore[arg-type]
        sessions=("S001", "S002", "S003", "S004"),
        round=2,
        intent="Let a refund carry its reason.",
        backend="rules",
        agents=("Checkout", "Payments", "Books", "Desk"),
        arbiters=("Desk",),
        proposals=(
            proposal(1, "decided", "accepted", (climb(),), yes),
            proposal(2, "decided", "refused", (climb(failed_at=4),)),
            proposal(3, "arbiter", "pending", (climb(failed_at=6), climb()), yes, no, judge),
            proposal(4, "gate", "pending", (climb(waiting_at=5),)),
            proposal(5, "proposed", "pending", ()),
        ),
        cost=m.Cost(spent_usd=0.81, cap_usd=1.0, calls=23, requests=19, cached=4, tokens=48_211, unpriced=0),
        activity="The gate runs the tests of P004." if state == "running" else "",
        ending="" if state == "running" else "Convergence: two rounds without a new proposal.",
    )


COMPARISON = m.Comparison(
    choices=(
        m.Choice(name="old/trace.jsonl", title="old/trace.jsonl"),
        m.Choice(name="trace.jsonl", title="trace.jsonl"),
    ),
    left="old/trace.jsonl",
    right="trace.jsonl",
    differences=(
        m.Difference(
            kind="count", topic="/Order/Paid", text="It is published less often.", left="500 ×", right="463 ×"
        ),
        m.Difference(
            kind="fields",
            topic="/Order/Accepted",
            text="'total' is new.",
            left="order_id, card",
            right="order_id, card, total",
        ),
        m.Difference(
            kind="removed", topic="/Mail/Sent", text="Only the left side publishes to it.", left="37 ×", right=""
        ),
        m.Difference(
            kind="failures", topic="/Order/Accepted", text="More attempts fail.", left="0 of 500", right="37 of 537"
        ),
    ),
    same=("/Order/Placed", "/Price/Asked"),
)
