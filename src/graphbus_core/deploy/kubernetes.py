"""Generates Kubernetes manifests for a graph, and checks beforehand the values that a cluster would refuse.

Each API object has its template in `templates/`. Without a ledger on NATS, each pod has one replica in a Deployment, because two
replicas would be two separate buses. With one, each agent may have a StatefulSet: a replica handles events out of its own volume,
those of a partition, or, if the settings say so, any.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from graphbus_core.errors import DeployError, RunError
from graphbus_core.ledger.nats_names import Address, is_on_nats, parse_address, stream_name
from graphbus_core.model.agent import AgentDefinition
from graphbus_core.model.artifacts import Artifacts
from graphbus_core.model.config import NatsConfig, RuntimeSettings
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
_REPLICAS = re.compile(r"([^=]+)=([1-9][0-9]{0,3})(?:\.\.([1-9][0-9]{0,3}))?")
_MONITORING = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):([1-9][0-9]{0,4})(?:/([^\s/]+))?")
_MONITORING_PORT = 8222
_GLOBAL_ACCOUNT = "$G"
"""The account of a NATS server without `accounts` in its configuration."""
_LONGEST_SET_NAME = 52
"""Kubernetes appends a hyphen and a hash of ten characters to the name of a StatefulSet, and uses it as a label."""
_MARGIN_S = 10
"""How long `on_stop` of the agents and the servers may take after the grace of the runtime, before the pod is killed."""
_LEAVING_S = 5
"""How long a served pod still answers after it was removed from its service: the removal reaches nodes with a delay."""


class Pod(NamedTuple):
    """A pod that runs all agents of a graph, or one of them.

    Attributes:
        name: The name of its workload and service.
        component: The value of its label `app.kubernetes.io/component`.
        agent: The only agent that runs in it; empty: all agents.
        keeps_state: Its state needs a volume that outlives the pod.
        replicas: How many of it run; the lowest number if KEDA scales them.
        most: The highest number of replicas if KEDA scales them, else 0.
        is_divided: Each replica handles a partition of the events of the agent.
    """

    name: str
    component: str
    agent: str = ""
    keeps_state: bool = False
    replicas: int = 1
    most: int = 0
    is_divided: bool = False


class ClusterPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The input of `generate_manifests`.

    Attributes:
        name: The name of the application, a DNS label.
        command: The command that writes the same files again.
        version: The version of the project.
        artifacts: The artifact folder, relative to the project.
        is_served: The graph accepts calls and events over HTTP.
        pull_secret: The name of the secret to pull the image with; empty: none.
        state: The size of the volume for the state, such as `1Gi`; empty: no volume.
        admitted: Further namespaces whose pods may connect to these pods.
        destinations: `CIDR[:PORT]` or `NAMESPACE[:PORT]` that pods may connect to; none: those that the powers declare.
        powers: The powers of the agents.
        ledger: `sqlite`, or the address of a NATS server without credentials; empty: none.
        monitoring: `HOST:PORT[/ACCOUNT]` of the monitoring of the NATS server; empty: port 8222 of the same host.
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
    ledger: str = ""
    monitoring: str = ""

    @property
    def server(self) -> Address | None:
        """The NATS server of the ledger; None without one."""
        return parse_address(self.ledger) if is_on_nats(self.ledger) else None

    @property
    def ledger_secret(self) -> str:
        """The name of the secret that holds the address of the ledger, with credentials, with one key for the pods of each agent.

        The key is that of the pod's component; a pod with all agents reads `url`.
        """
        return f"{self.name}-ledger"

    @property
    def monitoring_endpoint(self) -> tuple[str, str]:
        """`HOST:PORT` of the monitoring of the NATS server, and the account of the graph.

        A host without a dot gets the namespace of the graph, because KEDA asks from another one.

        Raises:
            DeployError: GBE703, `monitoring` is something else.
        """
        if self.monitoring:
            found = _MONITORING.fullmatch(self.monitoring)
            if found is None:
                reason, example = "it must look like HOST:PORT[/ACCOUNT]", "nats.messaging.svc:8222"
                raise invalid_value(self.monitoring, "monitoring endpoint", reason, example)
            return f"{found[1]}:{found[2]}", found[3] or _GLOBAL_ACCOUNT
        host = self.server.host if self.server else ""
        host = host if {".", ":"} & {*host} else f"{host}.{self.namespace}.svc"
        return f"{f'[{host}]' if ':' in host else host}:{_MONITORING_PORT}", _GLOBAL_ACCOUNT

    @property
    def grace_s(self) -> int:
        """Seconds until a stopping pod is killed: `grace_s` of the runtime, and a margin for `on_stop` and the servers."""
        return (_LEAVING_S if self.is_served else 0) + ceil(self.runtime.grace_s) + _MARGIN_S

    @property
    def token_secret(self) -> str:
        """The name of the secret that holds the token of the HTTP server under the key `token`."""
        return f"{self.name}-token"

    @property
    def version_label(self) -> str:
        """The tag of the image, or else the version of the project, as the value of a label; may be empty."""
        _, tag, _ = split_image(self.image)
        return re.sub(r"[^A-Za-z0-9._-]+", "-", tag or self.version)[:LONGEST_LABEL].strip("-._")


def _check_plan(plan: ClusterPlan) -> None:
    """Raise DeployError: GBE703, GBE720 or GBE740 for a value, an image or a ledger that manifests may not contain."""
    for pod in plan.pods:
        check_application_name(pod.name)
        if plan.server and len(pod.name) > _LONGEST_SET_NAME:
            reason = f"it has more than {_LONGEST_SET_NAME} characters, too many for the pods of a StatefulSet"
            raise invalid_value(pod.name, "application name", reason, "shop")
    check_ledger(plan.ledger)
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
    """Return the name if it is a DNS label that begins with a letter, as the names of services must.

    Raises:
        DeployError: GBE703 if it is not.
    """
    kind = "application name"
    if not check_label(name, kind)[0].isalpha():
        raise invalid_value(name, kind, "the name of a service must begin with a letter", f"shop-{name}")
    return name


def check_ledger(ledger: str) -> str:
    """Return the ledger if manifests may name it: nothing, `sqlite`, or the address of a NATS server without credentials.

    Raises:
        DeployError: GBE740 for anything else; the message does not repeat it.
    """
    reason = ""
    try:
        if ledger not in ("", "sqlite") and parse_address(ledger).user:
            reason = "its address contains a user or a password"
    except RunError:
        reason = "it is neither `sqlite` nor the address of a NATS server"
    if reason:
        raise DeployError("GBE740", reason=reason, example="nats://nats.messaging.svc:4222/shop")
    return ledger


def parse_replicas(
    texts: Iterable[str], agents: Sequence[AgentDefinition], nats: NatsConfig
) -> dict[str, tuple[int, int]]:
    """Return agent -> its lowest and its highest number of replicas, from `AGENT=NUMBER` or `AGENT=LOWEST..HIGHEST`.

    Of a fixed number, the highest is 0.

    Args:
        texts: The texts.
        agents: All agents.
        nats: Which agents are divided, and which may share events.

    Raises:
        DeployError: GBE703 for anything else, for a range of an agent for which no events wait, and for an agent that has a pod
            for each partition; GBE741 for several of an agent with events that is not `shared`.
    """
    known = {agent.name: agent for agent in agents}
    found = {}
    for text in texts:
        match = _REPLICAS.fullmatch(text)
        agent = known.get(match[1]) if match else None
        lowest, highest = (int(match[2]), int(match[3] or 0)) if match else (0, 0)
        reason = ""
        if agent is None:
            reason = f"it must be AGENT=NUMBER or AGENT=LOWEST..HIGHEST, with one of the agents {', '.join(known)}"
        elif 0 < highest < lowest:
            reason = "the highest number is below the lowest"
        elif highest and not agent.subscriptions:
            reason = f"{agent.name} subscribes to nothing, so that no events would scale it"
        elif agent.name in nats.partitions:
            reason = f"{agent.name} has {nats.partitions[agent.name]} partitions, and a pod for each"
        if agent is None or reason:
            raise invalid_value(text, "number of replicas", reason, "Payments=2, or Payments=1..5")
        if max(lowest, highest) > 1 and agent.subscriptions and agent.name not in nats.shared:
            raise DeployError("GBE741", name=agent.name, replicas=str(highest or lowest))
        found[text.partition("=")[0]] = lowest, highest
    return found


def check_pinned_image(image: str) -> str:
    """Return an image reference if it has a digest or a tag other than `latest`.

    Raises:
        DeployError: GBE703 for an invalid reference, GBE720 for one without tag and digest, or with `latest`.
    """
    _, tag, digest = split_image(check_image(image))
    if not digest and tag in ("", "latest"):
        raise DeployError("GBE720", image=image, example="ghcr.io/acme/shop:1.4.2")
    return image


def plan_pods(
    name: str,
    topology: Topology,
    agents: Sequence[str],
    keepers: frozenset[str],
    *,
    replicas: Mapping[str, tuple[int, int]] = {},
    partitions: Mapping[str, int] = {},
) -> tuple[Pod, ...]:
    """Return the pods of an application: one for all agents, or one for each.

    Args:
        name: The name of the application.
        topology: `"single"` or `"per-agent"`.
        agents: The names of the agents.
        keepers: The agents whose state must outlive their pod.
        replicas: What `parse_replicas` returns.
        partitions: Agent -> the number of its partitions, each of which gets a pod.

    Raises:
        DeployError: GBE723 for two agents whose names become the same label, GBE724 for a name that cannot become one.
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
    pods = []
    for label, agent in sorted(labels.items()):
        count = partitions.get(agent, 0)
        lowest, highest = (count, 0) if count else replicas.get(agent, (1, 0))
        pods.append(Pod(f"{name}-{label}", label, agent, agent in keepers, lowest, highest, is_divided=bool(count)))
    return tuple(pods)


def refuse_cut_edges(artifacts: Artifacts) -> None:
    """Check that each agent can run in a process of its own without a ledger on NATS: no edge may connect two agents.

    Raises:
        DeployError: GBE722 with every edge between two agents, and every possible edge from computed topics and calls.
    """
    pairs = permutations(artifacts.agents.agents, 2)
    uncertain = (cut for agent, other in pairs for cut in _uncertain_cuts(agent, other))
    cuts = sorted({*_certain_cuts(artifacts), *uncertain})
    if cuts:
        count = f"{len(cuts)} edge{'' if len(cuts) == 1 else 's'}"
        raise DeployError("GBE722", count=count, edges="; ".join(cuts))


def _certain_cuts(artifacts: Artifacts) -> Iterator[str]:
    """Yield a description of each edge between two agents, and of each pair of agents that subscribe to the same topic."""
    for edge in artifacts.graph.edges:
        if edge.source != edge.target:
            label = f"call of {edge.label}" if edge.kind == "call" else edge.label or edge.kind
            yield f"{edge.source} -> {edge.target} ({label})"
    for topic in artifacts.topics.topics:
        for first, second in combinations(sorted(set(topic.subscribers)), 2):
            yield f"{first} and {second} both subscribe to {topic.name}"


def _uncertain_cuts(agent: AgentDefinition, other: AgentDefinition) -> Iterator[str]:
    """Yield a description of each possible edge from one agent to another: computed topics that may match, computed calls."""
    for publication in agent.publications:
        for subscription in other.subscriptions:
            if not publication.topic and _may_match(publication.prefix, subscription.topic):
                yield f"{agent.name} -> {other.name} (a computed topic, {publication.prefix or '/'}…)"
            elif publication.topic and not subscription.topic:
                yield f"{agent.name} -> {other.name} (subscribes to a computed topic, perhaps {publication.topic})"
    if any(call.has_unknown and not call.agent for call in agent.calls):
        yield f"{agent.name} -> {other.name} (a computed call)"


def _may_match(prefix: str, pattern: str) -> bool:
    """True if a topic that begins with `prefix` may match the pattern of a subscription; a computed pattern is empty."""
    literal = pattern.partition("*")[0]
    has_wildcard = len(literal) < len(pattern)
    return not pattern or literal.startswith(prefix) or (has_wildcard and prefix.startswith(literal))


# --- The files --------------------------------------------------------------------------------------------------------


def generate_manifests(plan: ClusterPlan) -> dict[str, str]:
    """Return path -> text of the files of a kustomization; equal plans give equal bytes.

    Raises:
        DeployError: GBE703, GBE720, GBE740 for a value that manifests may not contain.
    """
    _check_plan(plan)
    files = dict(sorted(_render_objects(plan)))
    kustomization = fill_template(KUSTOMIZATION, command=plan.command, namespace=plan.namespace, resources=tuple(files))
    return {KUSTOMIZATION: kustomization, **files}


def _render_objects(plan: ClusterPlan) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of the file of each API object."""
    shared = _shared_values(plan)
    for name in ("configmap", "serviceaccount"):
        yield f"{name}.yaml", fill_template(f"{name}.yaml", **shared)
    for pod in plan.pods:
        folder = f"{pod.component}/" if pod.agent else ""
        values = {**shared, **_pod_values(plan, pod)}
        values["pod"] = fill_template("pod.yaml", **values)
        workload = "statefulset" if plan.server else "deployment"
        scaler = ("scaledobject",) if pod.most else ()
        for name in (workload, "networkpolicy", "poddisruptionbudget", "service", *scaler):
            yield f"{folder}{name}.yaml", fill_template(f"{name}.yaml", **values)
        if pod.keeps_state and not plan.server:
            claim = fill_template("persistentvolumeclaim.yaml", **{**values, "name": f"{pod.name}-state"})
            yield f"{folder}persistentvolumeclaim.yaml", claim


def _shared_values(plan: ClusterPlan) -> dict[str, Any]:
    """Return placeholder -> value for what is the same for all pods."""
    settings = _settings_text(plan)
    requested_egress = tuple(map(_parse_egress, plan.destinations))
    to_ledger = (_egress_to_ledger(plan.server, plan.namespace),) if plan.server else ()
    monitoring, account = plan.monitoring_endpoint if plan.server else ("", "")
    written = folders_to_write(plan.powers)
    return {
        **msgspec.structs.asdict(plan),
        "token_secret": plan.token_secret,
        "application": plan.name,
        "labels": _label_lines(plan, ""),
        "settings": settings,
        "checksum": sha256(settings.encode()).hexdigest(),
        "grace_s": plan.grace_s,
        "own_grace_s": f"{plan.runtime.grace_s:g}",
        "leaving_s": _LEAVING_S,
        "admitted": tuple(_namespace_selector(each) for each in plan.admitted),
        "egress": (*(requested_egress or _egress_of_powers(plan.powers)), *to_ledger),
        "is_on_nats": plan.server is not None,
        "ledger_secret": plan.ledger_secret,
        "monitoring": monitoring,
        "account": account,
        "stream": stream_name(plan.server.app) if plan.server else "",
        "written_mounts": tuple(
            f"- name: written-{number}\n  mountPath: {format_scalar(path)}" for number, path in enumerate(written, 1)
        ),
        "written_volumes": tuple(
            "# The powers declare it; its content is deleted with the pod.\n"
            f"- name: written-{number}\n  emptyDir:\n    sizeLimit: 128Mi"
            for number, _ in enumerate(written, 1)
        ),
    }


def _pod_values(plan: ClusterPlan, pod: Pod) -> dict[str, Any]:
    """Return placeholder -> value for what differs between pods."""
    serve = (f"--serve=0.0.0.0:{SERVE_PORT}",) if plan.is_served else ()
    only = (f"--only={pod.agent}",) if pod.agent else ()
    partition = ("--partition=$(GRAPHBUS_PARTITION)",) if pod.is_divided else ()
    return {
        "name": pod.name,
        "labels": _label_lines(plan, pod.component),
        "selector": fill_template("selector.yaml", application=plan.name, component=pod.component),
        "keeps_state": pod.keeps_state,
        "agent": pod.agent,
        "ledger_key": pod.component if pod.agent else "url",
        "scales": pod.most > 0,
        "replicas": pod.replicas,
        "is_one": pod.replicas == 1,
        "most": pod.most,
        "is_divided": pod.is_divided,
        "is_shared": pod.replicas > 1 and not pod.is_divided,
        "arguments": (
            f"--artifacts={HOME}/{plan.artifacts}",
            f"--health=0.0.0.0:{HEALTH_PORT}",
            *serve,
            *only,
            *partition,
        ),
    }


def _label_lines(plan: ClusterPlan, component: str) -> str:
    """Return the recommended labels of Kubernetes as YAML lines; `component` is empty for an object that all pods share."""
    return fill_template("labels.yaml", application=plan.name, component=component, version=plan.version_label)


def _settings_text(plan: ClusterPlan) -> str:
    """Return the settings for `GRAPHBUS_CONFIG` as TOML; they override those of the project.

    The allowed hosts of a served graph are all names of its services in the cluster, and the hosts that the project allows.
    """
    runtime = plan.runtime
    suffixes = ("", f".{plan.namespace}", f".{plan.namespace}.svc", f".{plan.namespace}.svc.cluster.local")
    named = [f"{pod.name}{suffix}" for pod in plan.pods for suffix in suffixes]
    return fill_template(
        "graphbus.toml",
        grace_s=dumps(runtime.grace_s),
        validation=runtime.validation,
        keep_dead_letters=dumps(runtime.keep_dead_letters),
        is_on_sqlite=plan.ledger == "sqlite",
        is_served=plan.is_served,
        allowed_hosts=", ".join(map(quote_text, dict.fromkeys([*named, *runtime.serve.allowed_hosts]))),
    )


def _parse_egress(text: str) -> str:
    """Parse `CIDR[:PORT]` or `NAMESPACE[:PORT]`, and return the egress rule for it as YAML lines.

    Raises:
        DeployError: GBE703 for anything else.
    """
    kind, example = "destination", "10.0.0.0/8:5432, or database:5432"
    address, slash, rest = text.rpartition("/")
    length_or_namespace, colon, digits = rest.partition(":")
    try:
        cidr = str(ip_network(f"{address}/{length_or_namespace}")) if slash else ""
    except ValueError as error:
        raise invalid_value(text, kind, f"{error}".rstrip("."), example) from None
    namespace = "" if slash else check_label(length_or_namespace, kind)
    port = int(digits) if digits.isascii() and digits.isdecimal() else 0
    if "%" in cidr or (colon and not 0 < port < 65_536):
        raise invalid_value(text, kind, "a port is a number from 1 to 65535, and an address has no zone", example)
    return _egress_rule(cidr, namespace=namespace, port=port)


def _egress_rule(*cidrs: str, namespace: str = "", port: int = 0, note: str = "") -> str:
    """Return an egress rule as YAML lines.

    Args:
        cidrs: The address blocks to allow; empty texts are left out.
        namespace: The namespace to allow; empty: none.
        port: The only port to allow; 0: all ports.
        note: A comment in front of the rule; empty: none.
    """
    blocks = (f"- ipBlock:\n    cidr: {format_scalar(each)}" for each in cidrs if each)
    peers = (*([_namespace_selector(namespace)] if namespace else []), *blocks)
    return fill_template("egress.yaml", peers=peers, port=port, note=note)


def _namespace_selector(namespace: str) -> str:
    """Return a selector for a namespace by the label that Kubernetes itself sets and protects."""
    return f"- namespaceSelector:\n    matchLabels:\n      kubernetes.io/metadata.name: {format_scalar(namespace)}"


def _egress_to_ledger(server: Address, namespace: str) -> str:
    """Return the egress rule for a NATS server.

    Args:
        server: An address, a service `NAME` or `NAME.NAMESPACE.svc`, or another host, for which any address is allowed.
        namespace: The namespace of the pods.
    """
    _, *rest = server.host.split(".")
    try:
        return _egress_rule(str(ip_network(server.host)), port=server.port)
    except ValueError:  # it is a name
        if not rest or rest[1:2] == ["svc"]:
            return _egress_rule(namespace=check_label(rest[0], "namespace") if rest else namespace, port=server.port)
    note = f"For {server.host}: a policy cannot contain host names."
    return _egress_rule(*_ANYWHERE, port=server.port, note=note)


def _egress_of_powers(powers: Powers) -> Iterator[str]:
    """Yield egress rules for the declared hosts, without those of this machine.

    A network policy cannot contain host names, so for names one rule allows port 443 of every host.
    """
    names, addresses = [], []
    for host in powers.network or ():
        try:
            addresses.append(ip_address(host))
        except ValueError:
            names.append(host)
    if "*" in names:
        yield _egress_rule(*_ANYWHERE, note="The powers declare any host.")
        return
    yield from (_egress_rule(str(ip_network(each))) for each in addresses if not each.is_loopback)
    names = [name for name in names if name != "localhost"]
    if names:
        note = f"For {', '.join(names)}: a policy cannot contain host names. --allow-egress replaces all these rules."
        yield _egress_rule(*_ANYWHERE, port=443, note=note)
