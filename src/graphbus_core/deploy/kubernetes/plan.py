"""What shall run in a cluster, with every value checked that the cluster would refuse later."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fractions import Fraction
from ipaddress import ip_network
from itertools import combinations, permutations
from math import ceil
from typing import Literal, NamedTuple

import msgspec

from graphbus_core.deploy.names import LONGEST_LABEL, as_label, check_image, check_label, parts_of_image, refusal
from graphbus_core.errors import DeployError
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.artifacts import BuildArtifacts
from graphbus_core.model.config import RuntimeSettings
from graphbus_core.model.powers import Powers

Topology = Literal["single", "per-agent"]

_BYTES = re.compile(r"[1-9][0-9]*(?:Ki|Mi|Gi|Ti|M|G|T)")
_NO_BYTES = "it is a number above 0 with one of Ki, Mi, Gi, Ti, M, G, T"
_CPU = re.compile(r"[1-9][0-9]*m?|0\.[0-9]{0,2}[1-9]|[1-9][0-9]*\.[0-9]{1,3}")
_NO_CPU = "it is a number of cores above 0, or of thousandths of one with m"
_MOST_PORT = 65_535
_MARGIN_S = 10
LEAVING_S = 5
"""How long a served pod goes on answering after it was taken out of its service: the news takes time to reach every node."""


class Pod(NamedTuple):
    """One pod: all agents of a graph, or one of them.

    Attributes:
        name: Of its deployment and service.
        component: The part of the application that it is.
        agent: The only agent that runs in it; empty: all.
        keeps_state: What it writes must outlive it.
    """

    name: str
    component: str
    agent: str = ""
    keeps_state: bool = False


class Destination(NamedTuple):
    """What a pod may reach: addresses or the pods of a namespace, on one port or all (0)."""

    cidr: str
    namespace: str = ""
    port: int = 0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What shall run, and how.

    Attributes:
        name: Of the application, a label.
        artifacts: The artifact folder, relative to the project.
        command: The command that writes the same files again.
        version: Of the application, as people know it.
        is_served: Calls and events are taken over HTTP.
        token_secret: The secret with the token, under the key `token`.
        pull_secret: The secret to pull the image with; empty: it needs none.
        state: Size of the volume for what a pod keeps; empty: nothing is kept.
        admitted: Namespaces whose pods may reach these pods, beside their own.
        destinations: `CIDR[:PORT]` or `NAMESPACE[:PORT]` that pods may reach; none: what follows from the powers.
        powers: What agents may do beyond computing.
        makes_namespace: The namespace is part of the files.
    """

    name: str
    namespace: str
    image: str
    command: str
    version: str = ""
    runtime: RuntimeSettings = RuntimeSettings()
    powers: Powers = Powers()
    pods: tuple[Pod, ...]
    artifacts: str = ".graphbus"
    is_served: bool = False
    token_secret: str = ""
    pull_secret: str = ""
    cpu: str = "100m"
    cpu_limit: str = ""
    memory: str = "256Mi"
    state: str = ""
    admitted: tuple[str, ...] = ()
    destinations: tuple[str, ...] = ()
    makes_namespace: bool = False

    @property
    def grace_s(self) -> int:
        """How long a pod gets to end: longer than the graph needs at most.

        The `grace_s` of the runtime is for requests and events that are under way. The margin is for what comes after them:
        `on_stop` of the agents, dead letters that are written, the servers.
        """
        leaving_s = LEAVING_S if self.is_served else 0
        return leaving_s + ceil(self.runtime.grace_s) + _MARGIN_S

    @property
    def version_label(self) -> str:
        """The version as the value of a label: the tag of the image, else the version of the project; may be empty."""
        _, tag, _ = parts_of_image(self.image)
        return re.sub(r"[^A-Za-z0-9._-]+", "-", tag or self.version)[:LONGEST_LABEL].strip("-._")


def check_plan(plan: Plan) -> None:
    """Refuse what a cluster would refuse, or what would surprise those who run it.

    Raises:
        DeployError: GBE703 for a value that is not of its kind, GBE720 for an image whose content may change.
    """
    check_label(plan.namespace, "name of a namespace")
    for pod in plan.pods:
        check_name(pod.name)
    check_fixed(plan.image)
    for secret in filter(None, (plan.token_secret, plan.pull_secret)):
        check_label(secret, "name of a secret")
    for admitted in plan.admitted:
        check_label(admitted, "name of a namespace")
    for value, pattern, kind, reason, example in (
        (plan.memory, _BYTES, "amount of memory", _NO_BYTES, "256Mi"),
        (plan.state, _BYTES, "size of a volume", _NO_BYTES, "1Gi"),
        (plan.cpu, _CPU, "amount of CPU", _NO_CPU, "100m"),
        (plan.cpu_limit, _CPU, "amount of CPU", _NO_CPU, "500m"),
    ):
        if value and not pattern.fullmatch(value):
            raise refusal(value, kind, reason, example)
    if plan.cpu_limit and _cores(plan.cpu_limit) < _cores(plan.cpu):
        raise refusal(plan.cpu_limit, "limit of CPU", f"it is less than what is reserved, {plan.cpu}", plan.cpu)
    for destination in plan.destinations:
        read_destination(destination)


def _cores(amount: str) -> Fraction:
    return Fraction(amount.removesuffix("m")) / (1000 if amount.endswith("m") else 1)


def check_name(name: str) -> str:
    """Return a name that a service can have as well: it begins with a letter.

    Raises:
        DeployError: GBE703.
    """
    kind = "name of an application"
    if not check_label(name, kind)[0].isalpha():
        raise refusal(name, kind, "the name of a service begins with a letter", f"shop-{name}")
    return name


def check_fixed(image: str) -> str:
    """Return the reference of an image if its content cannot change: it has a tag other than `latest`, or a digest.

    Raises:
        DeployError: GBE703 for what is no reference, GBE720.
    """
    _, tag, digest = parts_of_image(check_image(image))
    if not digest and tag in ("", "latest"):
        raise DeployError("GBE720", image=image, example="ghcr.io/acme/shop:1.4.2")
    return image


def read_destination(text: str) -> Destination:
    """Parse `CIDR[:PORT]` or `NAMESPACE[:PORT]`.

    Raises:
        DeployError: GBE703.
    """
    address, slash, rest = text.rpartition("/")
    first, colon, digits = rest.partition(":")
    if "%" in address:
        raise _no_destination(text, "the address is one of a single machine's network")
    try:
        cidr = str(ip_network(f"{address}/{first}")) if slash else ""
    except ValueError as error:
        raise _no_destination(text, f"{error}".rstrip(".")) from None
    namespace = "" if slash else check_label(first, "destination")
    port = int(digits) if digits.isascii() and digits.isdecimal() else 0
    if colon and not 0 < port <= _MOST_PORT:
        raise _no_destination(text, f"a port is a number from 1 to {_MOST_PORT}")
    return Destination(cidr, namespace, port)


def _no_destination(text: str, reason: str) -> DeployError:
    return refusal(text, "destination", reason, "10.0.0.0/8:5432, or database:5432")


def plan_pods(name: str, topology: Topology, agents: Sequence[str], keepers: frozenset[str]) -> tuple[Pod, ...]:
    """Decide which pods there are.

    Args:
        keepers: The agents whose state must outlive their pod.

    Raises:
        DeployError: GBE723 for agents whose names are the same in a cluster, GBE724 for one that has no name there.
    """
    if topology == "single":
        return (Pod(name=name, component="graph", keeps_state=bool(keepers)),)
    labels: dict[str, str] = {}
    for agent in agents:
        label = as_label(agent)
        if not label:
            raise DeployError("GBE724", agent=agent)
        if label in labels:
            raise DeployError("GBE723", first=labels[label], second=agent, label=label)
        labels[label] = agent
    return tuple(
        Pod(name=f"{name}-{label}", component=label, agent=agent, keeps_state=agent in keepers)
        for label, agent in sorted(labels.items())
    )


def refuse_cuts(artifacts: BuildArtifacts) -> None:
    """Make sure that no agent needs another one in its process: a bus ends where its process ends.

    Raises:
        DeployError: GBE722 with every edge that would be cut.
    """
    cuts = sorted(set(find_cuts(artifacts)))
    if cuts:
        count = f"{len(cuts)} edge{'' if len(cuts) == 1 else 's'}"
        raise DeployError("GBE722", count=count, edges="; ".join(cuts))


def find_cuts(artifacts: BuildArtifacts) -> Iterator[str]:
    """Describe each edge between two agents, and each possible one: what is unknown at build time counts as an edge."""
    for edge in artifacts.graph.edges:
        if edge.source != edge.target:
            label = f"call of {edge.label}" if edge.kind == "call" else edge.label or edge.kind
            yield f"{edge.source} -> {edge.target} ({label})"
    for topic in artifacts.topics.topics:
        for first, second in combinations(sorted(set(topic.subscribers)), 2):
            yield f"{first} and {second} both hear {topic.name}"
    for agent, other in permutations(artifacts.agents.agents, 2):
        yield from _find_uncertain(agent, other)


def _find_uncertain(agent: AgentDefinition, other: AgentDefinition) -> Iterator[str]:
    """Describe what may be an edge: a computed topic may be any with its prefix, a computed call may be of any agent."""
    for said in agent.publications:
        for heard in other.subscriptions:
            if not said.topic and _may_meet(said.prefix, heard.topic):
                yield f"{agent.name} -> {other.name} (a computed topic, {said.prefix or '/'}…)"
            elif said.topic and not heard.topic:
                yield f"{agent.name} -> {other.name} (hears a computed topic, perhaps {said.topic})"
    if any(call.has_unknown and not call.agent for call in agent.calls):
        yield f"{agent.name} -> {other.name} (a computed call)"


def _may_meet(prefix: str, heard: str) -> bool:
    certain = heard.partition("*")[0]
    return not heard or certain.startswith(prefix) or (len(certain) < len(heard) and prefix.startswith(certain))
