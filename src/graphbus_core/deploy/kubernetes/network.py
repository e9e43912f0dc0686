"""Who reaches a pod, and what it reaches: nothing but what is named."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple

from graphbus_core.deploy.facts import HEALTH_PORT, SERVE_PORT
from graphbus_core.deploy.kubernetes.objects import Object, make_object, selector_of
from graphbus_core.deploy.kubernetes.plan import Plan, Pod
from graphbus_core.deploy.names import check_label
from graphbus_core.deploy.yaml import Node, Noted
from graphbus_core.errors import DeployError
from graphbus_core.model.powers import Powers

_NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""Kubernetes itself puts the name of a namespace there, and nobody can change it."""
_MOST_PORT = 65_535
_HTTPS_PORT = 443
_ANYWHERE = ("0.0.0.0/0", "::/0")


class Destination(NamedTuple):
    """What a pod may reach: addresses or the pods of a namespace, on one port or all (0)."""

    cidr: str
    namespace: str
    port: int


def read_destination(text: str) -> Destination:
    """Understand `CIDR[:PORT]` and `NAMESPACE[:PORT]`.

    Raises:
        DeployError: GBE703.
    """
    if "/" in text:
        address, slash, rest = text.rpartition("/")
        if "%" in address:
            raise _no_destination(text, "the address is one of a single machine's network")
        length, colon, port = rest.partition(":")
        try:
            cidr = str(ip_network(f"{address}{slash}{length}"))
        except ValueError as error:
            reason = f"{error}".rstrip(".")
            raise _no_destination(text, reason) from None
        return Destination(cidr, "", _read_port(text, port) if colon else 0)
    name, colon, port = text.partition(":")
    return Destination("", check_label(name, "destination"), _read_port(text, port) if colon else 0)


def _read_port(text: str, port: str) -> int:
    if not (port.isascii() and port.isdecimal() and 0 < int(port) <= _MOST_PORT):
        raise _no_destination(text, f"a port is a number from 1 to {_MOST_PORT}")
    return int(port)


def _no_destination(text: str, reason: str) -> DeployError:
    return DeployError(
        "GBE703", value=repr(text), kind="destination", reason=reason, example="10.0.0.0/8:5432, or database:5432"
    )


def service(plan: Plan, pod: Pod) -> Object:
    """A name in the cluster for metrics and, if it is served, for calls and events."""
    ports: list[Node] = [_service_port("health", HEALTH_PORT)]
    if plan.is_served:
        ports.append(_service_port("serve", SERVE_PORT))
    spec: Object = {"type": "ClusterIP", "selector": selector_of(plan, pod), "ports": ports}
    return make_object("v1", "Service", pod.name, plan, pod, spec=spec)


def _service_port(name: str, port: int) -> Object:
    return {"name": name, "port": port, "targetPort": name, "protocol": "TCP", "appProtocol": "http"}


def network_policy(plan: Plan, pod: Pod) -> Object:
    """Pods of the namespace and of those that are admitted may come in; nothing goes out but to what is named."""
    ports: list[Node] = [{"port": HEALTH_PORT, "protocol": "TCP"}]  # numbers: not every network knows names of ports
    if plan.is_served:
        ports.append({"port": SERVE_PORT, "protocol": "TCP"})
    peers: list[Node] = [
        Noted({"podSelector": {}}, "Every pod of this namespace. Probes come from the node, which is always let in."),
        *({"namespaceSelector": {"matchLabels": {_NAMESPACE_LABEL: name}}} for name in plan.admitted),
    ]
    egress: list[Node] = [_outward(read_destination(each)) for each in plan.destinations] or _declared(plan.powers)
    spec: Object = {
        "podSelector": {"matchLabels": selector_of(plan, pod)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": peers, "ports": ports}],
        "egress": [_names(), *egress]
        if egress
        else Noted([], "nothing: no `network` is declared, and no --allow-egress given"),
    }
    return make_object("networking.k8s.io/v1", "NetworkPolicy", pod.name, plan, pod, spec=spec)


def _outward(destination: Destination) -> Object:
    if destination.cidr:
        peer: Object = {"ipBlock": {"cidr": destination.cidr}}
    else:
        peer = {"namespaceSelector": {"matchLabels": {_NAMESPACE_LABEL: destination.namespace}}}
    rule: Object = {"to": [peer]}
    if destination.port:
        rule["ports"] = [{"port": destination.port, "protocol": "TCP"}]
    return rule


def _declared(powers: Powers) -> list[Node]:
    """What the declared hosts come to: a policy knows addresses and no names."""
    hosts = [host for host in powers.network or () if host != "localhost" and not _is_loopback(host)]
    if "*" in hosts:
        return [Noted({"to": [{"ipBlock": {"cidr": each}} for each in _ANYWHERE]}, "The powers declare any host.")]
    addresses = {host: address for host in hosts if (address := _address_of(host))}
    found: list[Node] = [_outward(Destination(str(ip_network(each)), "", 0)) for each in addresses]
    names = [host for host in hosts if host not in addresses]
    if names:
        rule: Object = {
            "to": [{"ipBlock": {"cidr": each}} for each in _ANYWHERE],
            "ports": [{"port": _HTTPS_PORT, "protocol": "TCP"}],
        }
        note = f"For {', '.join(names)}: a policy knows no names. --allow-egress takes the place of all this."
        found.append(Noted(rule, note))
    return found


def _address_of(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    address = _address_of(host)
    return address is not None and address.is_loopback


def _names() -> Node:
    """Who reaches anything has to ask for its address."""
    peer: Object = {
        "namespaceSelector": {"matchLabels": {_NAMESPACE_LABEL: "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    ports: list[Node] = [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]
    return Noted({"to": [peer], "ports": ports}, "To look up names.")
