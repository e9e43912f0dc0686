"""What a plan refuses, what follows from it, and that whatever it lets pass becomes files that mean what it says."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.deploy.kubernetes import (
    ClusterPlan,
    Pod,
    generate_manifests,
)
from graphbus_core.errors import DeployError
from graphbus_core.model.config import RuntimeSettings, ServeConfig

DIGEST = f"sha256:{'0' * 64}"
LABELS = st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)


def make_plan(**changes: Any) -> ClusterPlan:
    pods = (Pod(name="shop", component="graph"),)
    return ClusterPlan(**{"name": "shop", "namespace": "n", "image": "shop:1", "command": "c", "pods": pods, **changes})


@pytest.mark.parametrize(
    ("image", "version", "label"),
    [
        ("a:1.2", "0.9", "1.2"),
        (f"a@{DIGEST}", "0.9", "0.9"),
        (f"a@{DIGEST}", "1.0+local.7", "1.0-local.7"),
        ("a:v1.", "", "v1"),
        (f"a:{'x' * 100}", "", "x" * 63),
        (f"a@{DIGEST}", "", ""),
    ],
)
def test_the_label_of_the_version(image: str, version: str, label: str) -> None:
    assert make_plan(image=image, version=version).version_label == label


def in_namespace(name: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}


NO_BYTES = ("x", "-1", "Gi", "0Gi", "1Gi\n", "٣Gi", "1.5Gi")
NO_CPU = ("x", "1e3", "0m", "0.0", "1\n", "٣", "1Gi")


@pytest.mark.parametrize(
    ("field", "text"),
    [
        *((field, text) for field in ("memory", "state") for text in NO_BYTES),
        *((field, text) for field in ("cpu",) for text in NO_CPU),
    ],
)
def test_what_is_no_quantity(field: str, text: str) -> None:
    with pytest.raises(DeployError, match="GBE703"):
        generate_manifests(make_plan(**{field: text}))


DESTINATIONS: list[tuple[str, Any, list[Any]]] = [
    ("10.0.0.0/8", {"ipBlock": {"cidr": "10.0.0.0/8"}}, []),
    ("fd00::/8:5432", {"ipBlock": {"cidr": "fd00::/8"}}, [{"port": 5432, "protocol": "TCP"}]),
    (
        "database:65535",
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "database"}}},
        [{"port": 65535, "protocol": "TCP"}],
    ),
]


@pytest.mark.parametrize(("text", "to", "ports"), DESTINATIONS)
def test_destinations(text: str, to: Any, ports: list[Any]) -> None:
    policy = yaml.safe_load(generate_manifests(make_plan(destinations=(text,)))["networkpolicy.yaml"])
    rule = policy["spec"]["egress"][-1]
    assert (rule["to"], rule.get("ports", [])) == ([to], ports)


ANYWHERE = [{"ipBlock": {"cidr": "0.0.0.0/0"}}, {"ipBlock": {"cidr": "::/0"}}]
SERVERS = [
    ("nats", [in_namespace("n")], 4222, "nats.n.svc:8222"),
    ("nats.bus.svc", [in_namespace("bus")], 4222, "nats.bus.svc:8222"),
    ("nats.bus.svc.cluster.local:5000", [in_namespace("bus")], 5000, "nats.bus.svc.cluster.local:8222"),
    ("10.1.2.3", [{"ipBlock": {"cidr": "10.1.2.3/32"}}], 4222, "10.1.2.3:8222"),
    ("[fd00::1]", [{"ipBlock": {"cidr": "fd00::1/128"}}], 4222, "[fd00::1]:8222"),
    ("nats.example.org", ANYWHERE, 4222, "nats.example.org:8222"),
]


@pytest.mark.parametrize(("host", "to", "port", "monitoring"), SERVERS)
def test_pods_reach_the_nats_server_and_keda_its_monitoring(host: str, to: Any, port: int, monitoring: str) -> None:
    pods = (Pod(name="shop-a", component="a", agent="A", keeps_state=True, most=2),)
    files = generate_manifests(make_plan(pods=pods, state="1Gi", ledger=f"nats://{host}"))
    *_, rule = yaml.safe_load(files["a/networkpolicy.yaml"])["spec"]["egress"]
    assert rule == {"to": to, "ports": [{"port": port, "protocol": "TCP"}]}
    (trigger,) = yaml.safe_load(files["a/scaledobject.yaml"])["spec"]["triggers"]
    assert trigger["metadata"]["natsServerMonitoringEndpoint"] == monitoring


def test_the_monitoring_and_the_account_can_be_named() -> None:
    plan = make_plan(ledger="nats://nats", monitoring="10.0.0.1:80/ORDERS")
    assert plan.monitoring_endpoint == ("10.0.0.1:80", "ORDERS")


@pytest.mark.parametrize("text", ["", "10.0.0.1", "10.0.0.0/33", "x/8", "10.0.0.0/8:65536", "a:²", "A", "a/b:1\n"])
def test_what_is_no_destination(text: str) -> None:
    with pytest.raises(DeployError, match="GBE703"):
        generate_manifests(make_plan(destinations=(text,)))


@given(
    name=LABELS,
    namespace=LABELS,
    hosts=st.lists(st.text(), max_size=3),
    grace_s=st.floats(0, 1e6),
    is_served=st.booleans(),
)
def test_whatever_the_settings_are_the_files_say_them(
    name: str, namespace: str, hosts: list[str], grace_s: float, *, is_served: bool
) -> None:
    runtime = RuntimeSettings(grace_s=grace_s, serve=ServeConfig(allowed_hosts=tuple(hosts)))
    pods = (Pod(name=name, component="graph"),)
    plan = make_plan(name=name, namespace=namespace, pods=pods, runtime=runtime, is_served=is_served)
    files = generate_manifests(plan)
    assert generate_manifests(plan) == files
    config = yaml.safe_load(files["configmap.yaml"])
    said = tomllib.loads(config["data"]["graphbus.toml"])["runtime"]
    assert said["grace_s"] == grace_s
    assert config["metadata"]["namespace"] == namespace
    if is_served:
        assert said["serve"]["allowed_hosts"][4:] == [each for each in dict.fromkeys(hosts) if each != name]
