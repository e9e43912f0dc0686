"""Attaches a ledger to a running graph: the worker on an event loop and a thread of its own, and the choice of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from threading import Thread
from time import monotonic, sleep
from types import MappingProxyType
from typing import Any, TypeVar

from graphbus_core.errors import RunError, raise_all
from graphbus_core.hosting.graph import LiveGraph, state_path
from graphbus_core.hosting.imports import require_packages, select_agents
from graphbus_core.hosting.signals import interruptible
from graphbus_core.ledger.nats_names import is_on_nats
from graphbus_core.ledger.questions import Asking
from graphbus_core.ledger.seam import EngineGone, History, Lag, Ledger, Questions, Subscription
from graphbus_core.ledger.worker import Wanted, Worker
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.config import OUTSIDE, NatsConfig, ResolvedRun, RuntimeSettings
from graphbus_core.model.deliveries import Metric
from graphbus_core.schema.types import UNKNOWN, as_json
from graphbus_core.store import BuildArtifacts

R = TypeVar("R")

_COUNTERS = {
    "repeated": "Deliveries that an earlier lease had left unfinished.",
    "lost": "Leases that were lost before they were settled.",
    "conflicts": "Attempts that were repeated because a state had changed.",
    "dead": "Dead letters.",
}
_STATES = ("waiting", "leased", "retrying", "parked", "dead")

_FIRST_POLL_S, _LONGEST_POLL_S = 0.002, 0.05
"""The pauses between two looks at the ledger in `settle`."""
_PATIENCE_S = 2.0
"""How long `close` waits for the engine."""


def attach_ledger(graph: LiveGraph, config: ResolvedRun) -> None:
    """Let a graph that has not started use the ledger of its settings.

    Raises:
        RunError: GBE658 for a ledger that does not exist, GBE643-645 for a file that cannot be used.
    """
    artifacts = None if graph.origin is None else graph.origin.artifacts
    _check_partition(config, () if artifacts is None else artifacts.agents.agents)
    settings = config.settings
    ledger = open_engine(settings.ledger, state_path(config), config.only, settings.nats, config.partition)
    graph.ledger = AttachedLedger(
        graph,
        ledger,
        others=subscriptions_in(artifacts, config) if artifacts is not None and config.only else (),
        build=digest_of(artifacts),
        partitions=settings.partitions,
        divided=divided_agents(settings),
        wanted={} if settings.validation == "off" else wanted_types(artifacts),
        missing_s=settings.missing_agent_s,
    )
    graph.at_end(graph.ledger.close)


def divided_agents(settings: RuntimeSettings) -> Mapping[str, int]:
    """Return agent -> its number of partitions, for those whose partitions have processes of their own: on NATS only."""
    return settings.nats.partitions if is_on_nats(settings.ledger) else {}


def check_agents_on_nats(agents: Sequence[AgentDefinition], settings: NatsConfig) -> None:
    """Check the agents that the settings name.

    Raises:
        RunError: GBE693, an agent that is divided has no key; GBE695, an agent does not exist.
    """
    select_agents(agents, [*settings.partitions, *settings.shared])
    keyed = {agent.name for agent in agents if any(each.key for each in agent.subscriptions)}
    raise_all(RunError("GBE693", agent=name) for name in settings.partitions if name not in keyed)


def _check_partition(config: ResolvedRun, agents: Sequence[AgentDefinition]) -> None:
    """Check `--partition`, and the names in the settings for NATS.

    Raises:
        RunError: GBE691, there is no such partition; and what `check_agents_on_nats` raises.
    """
    divided = divided_agents(config.settings)
    if is_on_nats(config.settings.ledger) and agents:
        check_agents_on_nats(agents, config.settings.nats)
    if config.partition is None:
        return
    reason = "" if config.only else "it needs --only with the agents whose partition it is"
    for agent in {*config.only} - {OUTSIDE} if is_on_nats(config.settings.ledger) else ():
        count = divided.get(agent, 1)
        if count <= config.partition:
            reason = f"{agent} has {count} partition{'' if count == 1 else 's'}, numbered from 0"
    if not is_on_nats(config.settings.ledger):
        reason = "processes that share a file share the partitions, too; only on NATS each has its own"
    if reason:
        raise RunError("GBE691", partition=str(config.partition), reason=reason)


def open_engine(
    name: str,
    path: str,
    agents: Collection[str] = (),
    nats: NatsConfig = NatsConfig(),  # noqa: B008 - it is frozen
    partition: int | None = None,
) -> History:
    """Return the engine with this name.

    Args:
        name: `sqlite`, or `nats://[user:password@]host[:port][/app]`.
        path: The state file of the graph.
        agents: The agents that this process hosts; empty: all.
        nats: The settings for NATS.
        partition: The partition of these agents that this process handles, on NATS; None: all.

    Raises:
        RunError: GBE658 for any other name, GBE643-645 for a file that cannot be used, GBE659 for a malformed address, GBE671
            if nats-py is not installed.
    """
    if is_on_nats(name):
        return _open_nats(name, path, agents, nats, partition)
    if name != "sqlite":
        raise RunError("GBE658", ledger=name)
    from graphbus_core.ledger.sqlite import SqliteLedger

    return SqliteLedger(path)


def _open_nats(url: str, path: str, agents: Collection[str], settings: NatsConfig, partition: int | None) -> History:
    """Return the engine on a NATS server; raise GBE659 for a malformed address, GBE671 if nats-py is not installed."""
    require_packages("A ledger on NATS", ["nats"], extra="nats")
    from graphbus_core.ledger.nats import NatsLedger

    return NatsLedger(url, path, agents=agents or None, settings=settings, partition=partition)


def digest_of(artifacts: BuildArtifacts | None) -> str:
    """Return the digest of a build; empty if there is no manifest."""
    return "" if artifacts is None or artifacts.manifest is None else artifacts.manifest.build_digest


def wanted_types(artifacts: BuildArtifacts | None) -> dict[tuple[str, str], Wanted]:
    """Return (handler, topic) -> what the handler takes, as `graphbus contract diff` compares them."""
    agents = () if artifacts is None else artifacts.agents.agents
    return {
        (f"{agent.name}.{each.method}", each.topic): Wanted(
            as_json(each.wanted) if each.is_typed else UNKNOWN, as_json(each.needed)
        )
        for agent in agents
        for each in agent.subscriptions
        if each.topic
    }


def subscriptions_in(artifacts: BuildArtifacts, config: ResolvedRun) -> list[Subscription]:
    """Return the subscriptions of the agents that `--only` leaves to other processes; without it, of all."""
    divided = divided_agents(config.settings)
    return [
        Subscription(
            agent=agent.name,
            handler=f"{agent.name}.{each.method}",
            topic=each.topic,
            partition_key=each.key,
            partitions=divided.get(agent.name, config.settings.partitions),
            on_retry="skip" if each.on_retry == "skip" else "block",
        )
        for agent in artifacts.agents.agents
        if agent.name not in config.only
        for each in agent.subscriptions
        if each.topic
    ]


def _labels_of(handler: str, topic: str) -> dict[str, str]:
    return {"messaging_destination_name": topic, "graphbus_handler": handler}


class AttachedLedger:
    """The ledger of a running graph. Its methods may be called from any thread but that of its loop.

    Args:
        graph: The graph; from now on, what it publishes goes to the ledger.
        ledger: The engine.
        others: See `Worker`.
        build: See `Worker`.
        partitions: See `Worker`.
        divided: See `Worker`.
        wanted: See `Worker`.
        missing_s: See `Asking`.
    """

    def __init__(
        self,
        graph: LiveGraph,
        ledger: Ledger,
        *,
        others: Sequence[Subscription] = (),
        build: str = "",
        partitions: int = 1,
        divided: Mapping[str, int] = MappingProxyType({}),
        wanted: Mapping[tuple[str, str], Wanted] = MappingProxyType({}),
        missing_s: float = RuntimeSettings().missing_agent_s,
    ) -> None:
        self.engine = ledger
        self.worker = Worker(
            graph.bus, ledger, others=others, build=build, partitions=partitions, divided=divided, wanted=wanted
        )
        self._graph = graph
        self._loop = asyncio.new_event_loop()
        self._asking = Asking(graph, ledger, self._loop, others, missing_s) if isinstance(ledger, Questions) else None
        self._thread = Thread(target=self._loop.run_forever, name="graphbus-ledger", daemon=True)
        self._has_begun = self._is_closed = False

    def begin(self) -> None:
        """Connect to the engine, append what agents have published at their start, and begin to handle events.

        It waits for a server that does not answer; a signal stops that.

        Raises:
            RunError: The engine cannot be used.
        """
        self._thread.start()
        self._has_begun = True
        with interruptible():
            self._wait_for(self.worker.open())
        if self._asking is not None:
            self.worker.on_wake = self._asking.answer_all
        self._loop.call_soon_threadsafe(self.worker.start)

    def settle(self, timeout_s: float | None = None) -> bool:
        """Wait until nothing is left to do for the agents of this process; False if that is not so after `timeout_s`."""
        ends_at = None if timeout_s is None else monotonic() + timeout_s
        pause_s = _FIRST_POLL_S
        while not self._is_idle():
            if (ends_at is not None and monotonic() >= ends_at) or self._graph.is_stopped:
                return False
            sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_POLL_S)
        return True

    def _is_idle(self) -> bool:
        """True if nothing is left to do for the agents of this process; False if that is not known now."""
        hosted = {each.name for each in self._graph.bus.subscriptions}
        lags = self._find_lag()
        return lags is not None and all(each.is_idle for each in lags if each.subscription.handler in hosted)

    def _find_lag(self) -> Sequence[Lag] | None:
        """Return what `Ledger.lag` returns; None while the engine cannot be reached."""
        with suppress(EngineGone):
            return self._wait_for(self.engine.lag())
        return None

    @property
    def is_reachable(self) -> bool:
        """False while the engine cannot be reached."""
        return self.worker.is_reachable and self.engine.is_reachable

    def metrics(self) -> list[Metric]:
        """Return what waits in the ledger for each subscription, and what the worker has counted."""
        found = [
            Metric(
                f"graphbus_ledger_{name}_total",
                "counter",
                meaning,
                [(_labels_of(*key), getattr(counts, name)) for key, counts in self.worker.counts.items()],
            )
            for name, meaning in _COUNTERS.items()
        ]
        lags = (self._find_lag() if self.is_reachable else None) or ()
        places = [(each, _labels_of(each.subscription.handler, each.subscription.topic)) for each in lags]
        counts = [(labels | {"state": name}, getattr(each, name)) for each, labels in places for name in _STATES]
        ages = [(labels, each.oldest_s) for each, labels in places]
        return [
            *found,
            Metric("graphbus_ledger_deliveries", "gauge", "Deliveries that are not done.", counts),
            Metric("graphbus_ledger_oldest_seconds", "gauge", "The age of the oldest event that waits.", ages),
        ]

    def responder_to(self, topic: str) -> str:
        """Return the agent of another process that answers requests on a topic; empty if this process may answer them."""
        return "" if self._asking is None else self._asking.responder_to(topic)

    def ask(self, agent: str, question: dict[str, Any], what: str, timeout_s: float | None) -> Any:
        """Put a request or call to an agent of another process; see `Asking.ask`.

        Raises:
            RunError: GBE696, this ledger carries no questions; and what `Asking.ask` raises.
        """
        if self._asking is None:
            raise RunError("GBE696", agent=agent, asked="--only")
        return self._asking.ask(agent, question, what, timeout_s)

    def drain(self, grace_s: float) -> None:
        """Claim nothing more, and wait up to `grace_s` for the handlers that run, and for answers to other processes."""
        if self._has_begun:
            self._wait_for(self._drain(grace_s))

    async def _drain(self, grace_s: float) -> None:
        answering = [] if self._asking is None else [self._asking.finish(grace_s)]
        await asyncio.gather(self.worker.drain(grace_s), *answering)

    def close(self) -> None:
        """Append what was published last, disconnect, and end the thread. Closing twice does nothing."""
        if self._has_begun and not self._is_closed:
            self._is_closed = True
            self._wait_for(self.worker.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_PATIENCE_S)
        if not self._thread.is_alive():
            self._loop.close()

    def _wait_for(self, work: Coroutine[Any, Any, R]) -> R:
        waiting = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return waiting.result()
        finally:
            waiting.cancel()  # if a signal has interrupted this thread; else it has ended
