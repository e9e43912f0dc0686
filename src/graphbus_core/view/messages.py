"""Everything that crosses `/view/…`, as JSON: what the endpoints answer, what the stream of events carries, what `POST` takes.

    GET  /view/graph                       GraphPicture
    GET  /view/events                      a stream of server-sent events: Hello, Tick, Bye
    GET  /view/deliveries                  DeliveryPage      ?before=&after=&limit=&topic=&agent=&key=&failed=1
    GET  /view/event/{event_id}            EventTree         ?payload=1 (needs the token)
    GET  /view/source/{Agent.method}       SourceText
    GET  /view/dead-letters                DeadLetterList
    POST /view/dead-letters/replay         ReplayOrder -> ReplayReport (needs the token)
    GET  /view/negotiation                 NegotiationPicture
    GET  /view/compare                     Comparison        ?left=&right=

An error is a `ProblemDetails` (RFC 9457) with a sentence, a code and a hint. Times are seconds since the epoch. A `note` is a
sentence for people about what is missing or incomplete; empty if nothing is.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from graphbus_core.hosting.instruments.trace import TracedDelivery
from graphbus_core.model.artifacts import EdgeKind
from graphbus_core.model.deliveries import Reason
from graphbus_core.model.proposals import RungStatus, Status, VoteDecision
from graphbus_core.schema.json import Json

SourceKind = Literal["run", "trace", "artifacts", "ledger", "negotiation"]
Verdict = Literal["proven", "unknown", "broken"]
OUTSIDE = "(outside)"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all messages: every field is always written."""


class Origin(Message, frozen=True, kw_only=True):
    """What the page shows.

    Attributes:
        kind: A running graph, a trace file, the artifacts of a build, a ledger, or a negotiation.
        name: Its name for people, such as the project, or the path of the file.
        server: An id that changes when the server restarts; numbers of deliveries count anew then.
        is_live: More may come; False for a file and for what has ended.
        has_payloads: Payloads can be asked for: they were recorded, and this request had the token.
        may_replay: Dead letters can be replayed: the graph runs here, and this request had the token.
        redacted: The keys of payloads whose values are never shown.
        note: Why something is missing, such as the end of a file that was cut off.
    """

    kind: SourceKind
    name: str
    server: str
    is_live: bool
    has_payloads: bool = False
    may_replay: bool = False
    redacted: tuple[str, ...] = ()
    note: str = ""


# --- the graph ---------------------------------------------------------------------------------


class Handler(Message, frozen=True, kw_only=True):
    """A handler of an agent: `name` is `Agent.method`, and `topics` are the topics and patterns that it subscribes to."""

    name: str
    topics: tuple[str, ...]
    line: int


class AgentBox(Message, frozen=True, kw_only=True):
    """An agent and its place in the drawing, in pixels; `x` and `y` are the upper left corner.

    The box with the name `OUTSIDE` stands for all that publishes from outside of the graph.

    Attributes:
        group: The group that it belongs to: the package of its module.
        file: Its file, relative to the project; empty if it is not known.
        note: Why it does not run, if it was left out.
    """

    name: str
    group: str
    module: str
    file: str
    line: int
    x: int
    y: int
    width: int
    height: int
    handlers: tuple[Handler, ...] = ()
    doc: str = ""
    note: str = ""


class Line(Message, frozen=True, kw_only=True):
    """An edge between two agents, or two groups; edges of the same kind and topic between the same two are one.

    Attributes:
        kind: `topic`: events from source to target; `call`: the target calls the source; `depends_on`: the target needs it.
        topic: The topic; empty for the other kinds.
        verdict: Whether both ends are known and fit, as in `graphbus check`; unknown edges are drawn dashed.
        doubt: Why it is not proven, or what is broken.
        handlers: The handlers at the target that get the events, as `Agent.method`.
        curve: The `d` of an SVG path.
    """

    source: str
    target: str
    kind: EdgeKind
    topic: str
    verdict: Verdict
    doubt: str
    handlers: tuple[str, ...]
    curve: str


class Group(Message, frozen=True, kw_only=True):
    """The agents of one package, and the place of the group in a drawing of groups only."""

    name: str
    agents: tuple[str, ...]
    x: int
    y: int
    width: int
    height: int


class Groups(Message, frozen=True, kw_only=True):
    """The drawing of the groups, for graphs that are too large to read agent by agent; its lines connect groups."""

    width: int
    height: int
    boxes: tuple[Group, ...]
    lines: tuple[Line, ...]


class TopicInfo(Message, frozen=True, kw_only=True):
    """A topic with the agents that publish to it and subscribe to it; `is_external`: it also comes from outside."""

    name: str
    publishers: tuple[str, ...]
    subscribers: tuple[str, ...]
    is_external: bool


class GraphPicture(Message, frozen=True, kw_only=True):
    """The drawing of the graph, in layers from left to right, and what the page needs to know about it."""

    origin: Origin
    width: int
    height: int
    agents: tuple[AgentBox, ...]
    lines: tuple[Line, ...]
    topics: tuple[TopicInfo, ...]
    groups: Groups
    note: str = ""


# --- the stream --------------------------------------------------------------------------------


class Delivery(TracedDelivery, frozen=True, kw_only=True, gc=False):
    """A delivery of the trace with its number.

    Attributes:
        seq: Its number since the start of the server; deliveries are in the order in which they ended.
        has_payload: The payload was recorded; `payload` itself is always empty here, see `EventTree`.
    """

    seq: int
    has_payload: bool = False


class Counts(Message, frozen=True, kw_only=True):
    """The counts of one handler and topic since the start, and what waits now.

    Attributes:
        delivered: Attempts, failed ones included.
        failed: Attempts that failed.
        dead: Dead letters.
        retrying: Events that wait for their next attempt.
        waiting: Events that wait in front of the handler; those in the common queue of the bus are in `Tick.queued`.
        lag_s: The age of the oldest event that waits; 0 if none does, or if that is not known.
    """

    delivered: int = 0
    failed: int = 0
    dead: int = 0
    retrying: int = 0
    waiting: int = 0
    lag_s: float = 0.0


class Hello(Message, frozen=True, kw_only=True):
    """The first message of the stream, `event: hello`.

    Attributes:
        oldest: The number of the oldest delivery that can still be asked for; 0: there is none.
        newest: The number of the latest one.
        interval_s: How many seconds pass between two ticks.
    """

    origin: Origin
    oldest: int
    newest: int
    interval_s: float


class Tick(Message, frozen=True, kw_only=True):
    """What has happened since the last tick, `event: tick`, at most four a second; sent also if nothing has, every ten seconds.

    Attributes:
        at: The time of the server.
        deliveries: A sample, oldest first: failures and retries before others, then some of each handler. Empty for a trace file
            that has grown: ask for `/view/deliveries?after=`.
        left_out: How many deliveries are not in the sample.
        first: The number of the first delivery since the last tick, sampled or not; 0 if there was none.
        last: That of the last one.
        published: Events published since the start.
        queued: Events that wait in the queue of the bus.
        dead_letters: All dead letters since the start.
        handlers: `Agent.method <- /Topic` (the topic or pattern of the subscription) -> its counts, where they have changed;
            in the first tick after `Hello`, all.
        negotiation: The negotiation has gone on: ask for `/view/negotiation` again.
    """

    at: float
    deliveries: tuple[Delivery, ...] = ()
    left_out: int = 0
    first: int = 0
    last: int = 0
    published: int = 0
    queued: int = 0
    dead_letters: int = 0
    handlers: dict[str, Counts] = {}
    negotiation: bool = False


class Bye(Message, frozen=True, kw_only=True):
    """The last message of a stream, `event: bye`: nothing will follow, and `reason` says why.

    `may_return`: a graph that is started again at this address may be meant, so that it is worth trying; False: this was all.
    """

    reason: str
    may_return: bool = True


# --- looking back ------------------------------------------------------------------------------


class DeliveryPage(Message, frozen=True, kw_only=True):
    """Deliveries of the past, oldest first.

    Attributes:
        has_older: There are older ones that fit.
        has_newer: There are newer ones that fit.
        oldest: The number of the oldest delivery that is kept, whether it fits or not; 0: there is none.
        newest: The number of the newest one.
    """

    deliveries: tuple[Delivery, ...]
    has_older: bool
    has_newer: bool
    oldest: int
    newest: int
    note: str = ""


class TreeEvent(Message, frozen=True, kw_only=True):
    """An event in a causal tree.

    Attributes:
        causation_id: The event that caused it; empty at the root.
        topic: Empty if nothing is known of the event but its id.
        published_by: The handler that published it; empty for an event from outside.
        payload: The payload, with redacted values replaced; None without `?payload=1`.
        payload_note: Why there is no payload, if one was asked for.
    """

    event_id: str
    causation_id: str
    topic: str
    src: str
    published_by: str
    published: float
    key: str = ""
    payload: Json = None
    payload_note: str = ""


class Planned(Message, frozen=True, kw_only=True):
    """An attempt that waits for its time, after `error` in the attempt before it; `at` is 0 if it is not known."""

    event_id: str
    handler: str
    attempt: int
    at: float
    error: str


class DeadLetter(Message, frozen=True, kw_only=True):
    """A dead letter.

    Attributes:
        id: What `ReplayOrder` names it by.
        handler: Empty if the event reached none.
        error: The error on one line.
        place: Where it was raised, `file:line`.
        attempts: How often the handler was tried.
        first_at: When it failed first.
        at: When it became a dead letter.
        replays: How often it was replayed since.
    """

    id: str
    event_id: str
    correlation_id: str
    topic: str
    handler: str
    reason: Reason
    error: str
    place: str
    traceback: str
    attempts: int
    first_at: float
    at: float
    replays: int = 0


class EventTree(Message, frozen=True, kw_only=True):
    """An event with everything that follows from the same event from outside.

    Attributes:
        event_id: The event that was asked for.
        root: The event from outside at the root.
        events: All events of the tree, causes before effects.
        deliveries: All deliveries of them, in the order in which they began.
        planned: Attempts that wait for their time.
        dead_letters: The dead letters of these events.
        running: `event_id` of events that a handler is handling now, with the handler: `[event_id, Agent.method]`.
    """

    event_id: str
    root: str
    events: tuple[TreeEvent, ...]
    deliveries: tuple[Delivery, ...]
    planned: tuple[Planned, ...] = ()
    dead_letters: tuple[DeadLetter, ...] = ()
    running: tuple[tuple[str, str], ...] = ()
    note: str = ""


class Vote(Message, frozen=True, kw_only=True):
    """The vote of one agent on a proposal."""

    evaluator: str
    decision: VoteDecision
    is_arbiter: bool
    reason: str


class Decision(Message, frozen=True, kw_only=True):
    """The decision that wrote lines of a file: an accepted proposal; fields that are not known are empty.

    Attributes:
        first: The first of the lines that it wrote.
        last: The last of them.
        consensus: How it was accepted, and by whom.
    """

    session: str
    proposal: str
    agent: str
    title: str
    reason: str
    consensus: str
    commit: str
    first: int
    last: int
    votes: tuple[Vote, ...]


class SourceText(Message, frozen=True, kw_only=True):
    """The text of a handler or method.

    Attributes:
        file: The file, relative to the project.
        first: The number of the first line in `lines`.
        lines: The lines, without line ends.
        why: The decisions that wrote some of these lines, in the order of the lines.
        failing: Numbers of lines at which the handler has failed, from the dead letters.
    """

    name: str
    file: str
    first: int
    lines: tuple[str, ...]
    why: tuple[Decision, ...] = ()
    failing: tuple[int, ...] = ()
    note: str = ""


# --- dead letters ------------------------------------------------------------------------------


class DeadLetterList(Message, frozen=True, kw_only=True):
    """The dead letters that are kept, newest first, `total` of them; `may_replay` as in `Origin`.

    `counted` is what `Tick.dead_letters` was when they were read, so that the page counts on from there.
    """

    letters: tuple[DeadLetter, ...]
    total: int
    counted: int = 0
    may_replay: bool
    note: str = ""


class ReplayOrder(Message, frozen=True, kw_only=True):
    """The body of `POST /view/dead-letters/replay`: the ids, or no ids and `every`; `confirmed`: a person has said yes."""

    ids: tuple[str, ...] = ()
    every: bool = False
    confirmed: bool = False


class Replayed(Message, frozen=True, kw_only=True):
    """What came of the replay of one letter: it was handled, it failed again with a new error, or it is not there any more."""

    id: str
    outcome: Literal["handled", "failed_again", "gone"]
    before: str
    after: str = ""


class ReplayReport(Message, frozen=True, kw_only=True):
    """What came of a replay, in the order of the letters."""

    replayed: tuple[Replayed, ...]


# --- negotiations ------------------------------------------------------------------------------


class Rung(Message, frozen=True, kw_only=True):
    """A rung of the gate for one proposal: `passed`, `failed` or `not_run`; `running` or `waiting` while the gate works on it."""

    rung: str
    name: str
    status: RungStatus | Literal["running", "waiting"]
    code: str = ""
    message: str = ""


class ProposalPicture(Message, frozen=True, kw_only=True):
    """A proposal so far.

    Attributes:
        status: As in the record of a session; `pending` until it is decided.
        stage: What is being done with it now; `decided` at the end.
        checks: The rungs each time that the gate checked it, the last time last.
        steps: What else happened to it, a sentence each.
        outcome: How it ended, in a sentence; empty while it is open.
        cost_usd: What the questions about it have cost; None: not known.
    """

    id: str
    src: str
    title: str
    reason: str
    round: int
    files: tuple[str, ...]
    affects: tuple[str, ...]
    status: Status
    stage: Literal["proposed", "gate", "votes", "arbiter", "decided"]
    checks: tuple[tuple[Rung, ...], ...]
    votes: tuple[Vote, ...]
    steps: tuple[str, ...]
    outcome: str
    parent: str = ""
    diff: str = ""
    cost_usd: float | None = None


class Cost(Message, frozen=True, kw_only=True):
    """What a negotiation has cost so far; `cap_usd` 0: no cap; `unpriced`: requests whose price is not known."""

    spent_usd: float = 0.0
    cap_usd: float = 0.0
    calls: int = 0
    requests: int = 0
    cached: int = 0
    tokens: int = 0
    unpriced: int = 0


class NegotiationPicture(Message, frozen=True, kw_only=True):
    """A negotiation so far, or a whole session.

    Attributes:
        session: Its name; empty if there is none.
        state: `none`: there is no negotiation to show.
        sessions: The names of all sessions that can be shown, the last one last: `?session=`.
        activity: What is being done now, in one line.
        ending: How it ended, in a sentence.
        notes: Remarks about no proposal.
    """

    session: str
    state: Literal["none", "running", "ended"]
    sessions: tuple[str, ...] = ()
    round: int = 0
    intent: str = ""
    backend: str = ""
    agents: tuple[str, ...] = ()
    arbiters: tuple[str, ...] = ()
    proposals: tuple[ProposalPicture, ...] = ()
    cost: Cost = Cost()
    activity: str = ""
    ending: str = ""
    notes: tuple[str, ...] = ()
    note: str = ""


# --- comparing ---------------------------------------------------------------------------------


class Choice(Message, frozen=True, kw_only=True):
    """Something that can be compared: `name` is the value of `left` and `right`."""

    name: str
    title: str


class Difference(Message, frozen=True, kw_only=True):
    """What is published differently: `left` and `right` say it for each side; empty: not at all.

    Attributes:
        kind: `added`, `removed`: only the right or the left side publishes to the topic; `count`: how often; `fields`: the keys
            of the payloads; `handlers`: who gets the events; `failures`: how many attempts fail.
        text: The difference in a sentence.
    """

    kind: Literal["added", "removed", "count", "fields", "handlers", "failures"]
    topic: str
    text: str
    left: str
    right: str


class Comparison(Message, frozen=True, kw_only=True):
    """Two traces or two builds, and what they publish differently.

    Attributes:
        choices: What can be compared.
        same: The topics without a difference.
    """

    choices: tuple[Choice, ...]
    left: str = ""
    right: str = ""
    differences: tuple[Difference, ...] = ()
    same: tuple[str, ...] = ()
    note: str = ""
