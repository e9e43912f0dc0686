"""What shall run in a cluster, with every value checked that the cluster would refuse later."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Literal

import msgspec

from graphbus_core.deploy.names import as_label, check_image, check_label
from graphbus_core.errors import DeployError
from graphbus_core.model.config import RuntimeSettings
from graphbus_core.model.powers import Powers

Topology = Literal["single", "per-agent"]

_IMAGE_EXAMPLE = "ghcr.io/acme/shop:1.4.2"
_BYTES = re.compile(r"[1-9][0-9]*(?:Ki|Mi|Gi|Ti|M|G|T)")
_CPU = re.compile(r"[1-9][0-9]*m?|0\.[0-9]{0,2}[1-9]|[1-9][0-9]*\.[0-9]{1,3}")
_LONGEST_LABEL = 63
_MARGIN_S = 10
LEAVING_S = 5
"""How long a served pod goes on answering after it was taken out of its service: the news takes time to reach every node."""


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """One pod: all agents of a graph, or one of them.

    Attributes:
        name: Of its deployment and service.
        component: Which part of the application it is.
        agent: The only agent that runs in it; empty: all.
        keeps_state: What it writes must outlive it.
    """

    name: str
    component: str
    agent: str = ""
    keeps_state: bool = False


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What shall run, and how.

    Attributes:
        name: Of the application, a label.
        artifacts: The artifact folder, relative to the project.
        command: How the files were asked for, for the head of the kustomization.
        version: Of the application, as people know it.
        is_served: Calls and events are taken over HTTP.
        token_secret: The secret with the token, under the key `token`.
        pull_secret: The secret to pull the image with; empty: it needs none.
        state: Size of the volume for what a pod keeps; empty: nothing is kept.
        admitted: Namespaces from which pods may be reached, beside their own.
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

        `grace_s` is for everything that is under way, requests and events. The margin is for what comes after it: `on_stop` of
        the agents, dead letters on their way to the disk, the servers.
        """
        leaving_s = LEAVING_S if self.is_served else 0
        return leaving_s + ceil(self.runtime.grace_s) + _MARGIN_S

    @property
    def version_label(self) -> str:
        """The version as the value of a label: the tag of the image, else the version of the project; may be empty."""
        _, tag, _ = parts_of_image(self.image)
        text = re.sub(r"[^A-Za-z0-9._-]+", "-", tag or self.version)[:_LONGEST_LABEL]
        return text.strip("-._")


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
    for value, pattern, kind, example in (
        (plan.memory, _BYTES, "amount of memory", "256Mi"),
        (plan.state, _BYTES, "size of a volume", "1Gi"),
        (plan.cpu, _CPU, "amount of CPU", "100m"),
        (plan.cpu_limit, _CPU, "amount of CPU", "500m"),
    ):
        if value and not pattern.fullmatch(value):
            raise DeployError("GBE703", value=repr(value), kind=kind, reason=_reason(pattern), example=example)
    if plan.cpu_limit and _cores(plan.cpu_limit) < _cores(plan.cpu):
        reason = f"it is less than what is reserved, {plan.cpu}"
        raise DeployError("GBE703", value=repr(plan.cpu_limit), kind="limit of CPU", reason=reason, example=plan.cpu)


def _cores(amount: str) -> Fraction:
    return Fraction(amount.removesuffix("m")) / (1000 if amount.endswith("m") else 1)


def check_name(name: str) -> str:
    """Give back a name that a service can have, too: it begins with a letter.

    Raises:
        DeployError: GBE703.
    """
    check_label(name, "name of an application")
    if not name[0].isalpha():
        reason = "the name of a service begins with a letter"
        raise DeployError(
            "GBE703", value=repr(name), kind="name of an application", reason=reason, example=f"shop-{name}"
        )
    return name


def check_fixed(image: str) -> str:
    """Give back the reference of an image that says which one: with a tag other than `latest`, or a digest.

    Raises:
        DeployError: GBE703 for what is no reference, GBE720.
    """
    check_image(image)
    _, tag, digest = parts_of_image(image)
    if not digest and tag in ("", "latest"):
        raise DeployError("GBE720", image=image, example=_IMAGE_EXAMPLE)
    return image


def parts_of_image(image: str) -> tuple[str, str, str]:
    """Name, tag and digest of a reference; a colon before the last slash is that of a port."""
    name, _, digest = image.partition("@")
    folder, slash, last = name.rpartition("/")
    base, _, tag = last.partition(":")
    return f"{folder}{slash}{base}", tag, digest


def plan_pods(name: str, topology: Topology, agents: Sequence[str], keepers: frozenset[str]) -> tuple[Pod, ...]:
    """Say which pods there are.

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


def _reason(pattern: re.Pattern[str]) -> str:
    if pattern is _CPU:
        return "it is a number of cores above 0, or of thousandths of one with m"
    return "it is a number above 0 with one of Ki, Mi, Gi, Ti, M, G, T"
