"""Manifests for Kubernetes: what shall run, with every value checked that a cluster would refuse later, and the files.

Each object of the API has its template in `templates/`. There is one replica of each pod: two would be two buses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from ipaddress import ip_address, ip_network
from itertools import combinations, permutations
from json import dumps
from math import ceil
from typing import Any, Literal, NamedTuple

import msgspec

from graphbus_core.deploy.names import (
    HEALTH_PORT,
    HOME,
    LONGEST_LABEL,
    SERVE_PORT,
    check_image,
    check_label,
    folders_to_write,
    invalid_value,
    make_label,
    split_image,
)
from graphbus_core.deploy.render import fill_template
from graphbus_core.deploy.yaml import format_scalar, quote_text
from graphbus_core.errors import DeployError
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.artifacts import Artifacts
from graphbus_core.model.config import RuntimeSettings
from graphbus_core.model.powers import Powers

Topology = Literal["single", "per-agent"]

KUSTOMIZATION = "kustomization.yaml"
_ANYWHERE = ("0.0.0.0/0", "::/0")
_BYTES = (
    r"[1-9][0-9]*(?:Ki|Mi|Gi|Ti|M|G|T)",
    "it must be a number above 0 followed by one of Ki, Mi, Gi, Ti, M, G, T",
    "256Mi",
)
_CPU = (
    r"[1-9][0-9]*m?|0\.[0-9]{0,2}[1-9]|[1-9][0-9]*\.[0-9]{1,3}",
    "it must be a number of cores above 0, or of thousandths of a core followed by m",
    "100m",
)
_MARGIN_S = 10
_LEAVING_S = 5
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


class ClusterPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What shall run, and how.

    Attributes:
        name: Of the application, a label.
        artifacts: The artifact folder, relative to the project.
        command: The command that writes the same files again.
        version: Of the application, as people know it.
        is_served: Calls and events are taken over HTTP.
        pull_secret: The secret to pull the image with; empty: it needs none.
        state: Size of the volume for what a pod keeps; empty: nothing is kept.
        admitted: Namespaces whose pods may reach these pods, beside their own.
        destinations: `CIDR[:PORT]` or `NAMESPACE[:PORT]` that pods may reach; none: what follows from the powers.
        powers: What agents may do beyond computing.
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
    pull_secret: str = ""
    cpu: str = "100m"
    memory: str = "256Mi"
    state: str = ""
    admitted: tuple[str, ...] = ()
    destinations: tuple[str, ...] = ()

    @property
    def grace_s(self) -> int:
        """How long a pod gets to end: `grace_s` of the runtime, and a margin for `on_stop`, dead letters and the servers."""
        return (_LEAVING_S if self.is_served else 0) + ceil(self.runtime.grace_s) + _MARGIN_S

    @property
    def token_secret(self) -> str:
        """The secret with the token, under the key `token`."""
        return f"{self.name}-token"

    @property
    def version_label(self) -> str:
        """The version as the value of a label: the tag of the image, else the version of the project; may be empty."""
        _, tag, _ = split_image(self.image)
        return re.sub(r"[^A-Za-z0-9._-]+", "-", tag or self.version)[:LONGEST_LABEL].strip("-._")


def _check_plan(plan: ClusterPlan) -> None:
    """Refuse what a cluster would refuse, or what would surprise those who run it."""
    for pod in plan.pods:
        check_application_name(pod.name)
    check_pinned_image(plan.image)
    for namespace in (plan.namespace, *plan.admitted):
        check_label(namespace, "namespace")
    if plan.pull_secret:
        check_label(plan.pull_secret, "name of a secret")
    for value, kind, (pattern, reason, example) in (
        (plan.memory, "amount of memory", _BYTES),
        (plan.state, "size of a volume", _BYTES),
        (plan.cpu, "amount of CPU", _CPU),
    ):
        if value and not re.fullmatch(pattern, value):
            raise invalid_value(value, kind, reason, example)


def check_application_name(name: str) -> str:
    """Return a name that a service can have as well: it begins with a letter.

    Raises:
        DeployError: GBE703.
    """
    kind = "application name"
    if not check_label(name, kind)[0].isalpha():
        raise invalid_value(name, kind, "the name of a service must begin with a letter", f"shop-{name}")
    return name


def check_pinned_image(image: str) -> str:
    """Return the reference of an image if its content cannot change: it has a tag other than `latest`, or a digest.

    Raises:
        DeployError: GBE703 for what is no reference, GBE720.
    """
    _, tag, digest = split_image(check_image(image))
    if not digest and tag in ("", "latest"):
        raise DeployError("GBE720", image=image, example="ghcr.io/acme/shop:1.4.2")
    return image


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
        label = make_label(agent)
        if not label:
            raise DeployError("GBE724", agent=agent)
        if label in labels:
            raise DeployError("GBE723", first=labels[label], second=agent, label=label)
        labels[label] = agent
    return tuple(
        Pod(name=f"{name}-{label}", component=label, agent=agent, keeps_state=agent in keepers)
        for label, agent in sorted(labels.items())
    )


def refuse_cut_edges(artifacts: Artifacts) -> None:
    """Make sure that no agent needs another one in its process: a bus ends where its process ends.

    Raises:
        DeployError: GBE722 with every edge that would be cut, and each possible one: what is unknown at build time counts.
    """
    pairs = permutations(artifacts.agents.agents, 2)
    uncertain = (cut for agent, other in pairs for cut in _uncertain_cuts(agent, other))
    cuts = sorted({*_certain_cuts(artifacts), *uncertain})
    if cuts:
        count = f"{len(cuts)} edge{'' if len(cuts) == 1 else 's'}"
        raise DeployError("GBE722", count=count, edges="; ".join(cuts))


def _certain_cuts(artifacts: Artifacts) -> Iterator[str]:
    for edge in artifacts.graph.edges:
        if edge.source != edge.target:
            label = f"call of {edge.label}" if edge.kind == "call" else edge.label or edge.kind
            yield f"{edge.source} -> {edge.target} ({label})"
    for topic in artifacts.topics.topics:
        for first, second in combinations(sorted(set(topic.subscribers)), 2):
            yield f"{first} and {second} both hear {topic.name}"


def _uncertain_cuts(agent: AgentDefinition, other: AgentDefinition) -> Iterator[str]:
    """A computed topic may be any with its prefix, a computed call may be of any agent."""
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


# --- The files --------------------------------------------------------------------------------------------------------


def generate_manifests(plan: ClusterPlan) -> dict[str, str]:
    """Return the files of a kustomization, path -> text; the same plan gives the same bytes.

    Raises:
        DeployError: What `_check_plan` raises.
    """
    _check_plan(plan)
    files = dict(sorted(_objects(plan)))
    kustomization = fill_template(KUSTOMIZATION, command=plan.command, namespace=plan.namespace, resources=tuple(files))
    return {KUSTOMIZATION: kustomization, **files}


def _objects(plan: ClusterPlan) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each object."""
    shared = _shared_values(plan)
    for name in ("configmap", "serviceaccount"):
        yield f"{name}.yaml", fill_template(f"{name}.yaml", **shared)
    for pod in plan.pods:
        folder = f"{pod.component}/" if pod.agent else ""
        values = {**shared, **_pod_values(plan, pod)}
        for name in ("deployment", "networkpolicy", "poddisruptionbudget", "service"):
            yield f"{folder}{name}.yaml", fill_template(f"{name}.yaml", **values)
        if pod.keeps_state:
            claim = fill_template("persistentvolumeclaim.yaml", **{**values, "name": f"{pod.name}-state"})
            yield f"{folder}persistentvolumeclaim.yaml", claim


def _shared_values(plan: ClusterPlan) -> dict[str, Any]:
    """What the templates say of the whole application, by the names of their holes."""
    settings = _settings_text(plan)
    named = tuple(map(_named_egress, plan.destinations))
    written = folders_to_write(plan.powers)
    return {
        **msgspec.structs.asdict(plan),
        "token_secret": plan.token_secret,
        "application": plan.name,
        "labels": _labels(plan, ""),
        "settings": settings,
        "checksum": sha256(settings.encode()).hexdigest(),
        "grace_s": plan.grace_s,
        "own_grace_s": f"{plan.runtime.grace_s:g}",
        "leaving_s": _LEAVING_S,
        "admitted": tuple(_namespace_selector(each) for each in plan.admitted),
        "egress": tuple(named or _declared_egress(plan.powers)),
        "written_mounts": tuple(
            f"- name: written-{number}\n  mountPath: {format_scalar(path)}" for number, path in enumerate(written, 1)
        ),
        "written_volumes": tuple(
            "# The powers declare it; nothing here outlives the pod.\n"
            f"- name: written-{number}\n  emptyDir:\n    sizeLimit: 128Mi"
            for number, _ in enumerate(written, 1)
        ),
    }


def _pod_values(plan: ClusterPlan, pod: Pod) -> dict[str, Any]:
    serve = (f"--serve=0.0.0.0:{SERVE_PORT}",) if plan.is_served else ()
    only = (f"--only={pod.agent}",) if pod.agent else ()
    return {
        "name": pod.name,
        "labels": _labels(plan, pod.component),
        "selector": fill_template("selector.yaml", application=plan.name, component=pod.component),
        "keeps_state": pod.keeps_state,
        "arguments": (f"--artifacts={HOME}/{plan.artifacts}", f"--health=0.0.0.0:{HEALTH_PORT}", *serve, *only),
    }


def _labels(plan: ClusterPlan, component: str) -> str:
    """The recommended labels. None is of a person or a moment, so that the same plan gives the same files."""
    return fill_template("labels.yaml", application=plan.name, component=component, version=plan.version_label)


def _settings_text(plan: ClusterPlan) -> str:
    """Return the settings of the place as TOML, for `GRAPHBUS_CONFIG`; they override those of the project.

    A served graph answers to the names of its services, as far as they may be shortened, and to those that the project allows.
    """
    runtime = plan.runtime
    suffixes = ("", f".{plan.namespace}", f".{plan.namespace}.svc", f".{plan.namespace}.svc.cluster.local")
    named = [f"{pod.name}{suffix}" for pod in plan.pods for suffix in suffixes]
    return fill_template(
        "graphbus.toml",
        grace_s=dumps(runtime.grace_s),
        validation=runtime.validation,
        keep_dead_letters=dumps(runtime.keep_dead_letters),
        is_served=plan.is_served,
        allowed_hosts=", ".join(map(quote_text, dict.fromkeys([*named, *runtime.serve.allowed_hosts]))),
    )


def _named_egress(text: str) -> str:
    """Parse `CIDR[:PORT]` or `NAMESPACE[:PORT]`.

    Raises:
        DeployError: GBE703.
    """
    kind, example = "destination", "10.0.0.0/8:5432, or database:5432"
    address, slash, rest = text.rpartition("/")
    first, colon, digits = rest.partition(":")
    try:
        cidr = str(ip_network(f"{address}/{first}")) if slash else ""
    except ValueError as error:
        raise invalid_value(text, kind, f"{error}".rstrip("."), example) from None
    namespace = "" if slash else check_label(first, kind)
    port = int(digits) if digits.isascii() and digits.isdecimal() else 0
    if "%" in cidr or (colon and not 0 < port < 65_536):
        raise invalid_value(text, kind, "a port is a number from 1 to 65535, and an address has no zone", example)
    return _egress(cidr, namespace=namespace, port=port)


def _egress(*cidrs: str, namespace: str = "", port: int = 0, note: str = "") -> str:
    blocks = (f"- ipBlock:\n    cidr: {format_scalar(each)}" for each in cidrs if each)
    peers = (*([_namespace_selector(namespace)] if namespace else []), *blocks)
    return fill_template("egress.yaml", peers=peers, port=port, note=note)


def _namespace_selector(namespace: str) -> str:
    """Kubernetes itself writes the name of a namespace into this label, and nobody can change it."""
    return f"- namespaceSelector:\n    matchLabels:\n      kubernetes.io/metadata.name: {format_scalar(namespace)}"


def _declared_egress(powers: Powers) -> Iterator[str]:
    """What the declared hosts need: a policy knows addresses and no names."""
    names, addresses = [], []
    for host in powers.network or ():
        try:
            addresses.append(ip_address(host))
        except ValueError:
            names.append(host)
    if "*" in names:
        yield _egress(*_ANYWHERE, note="The powers declare any host.")
        return
    yield from (_egress(str(ip_network(each))) for each in addresses if not each.is_loopback)
    names = [name for name in names if name != "localhost"]
    if names:
        note = f"For {', '.join(names)}: a policy knows no names. --allow-egress takes the place of all this."
        yield _egress(*_ANYWHERE, port=443, note=note)
