"""What a pod and its image open follows from the declared powers."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from graphbus_core.deploy.image import render_dockerfile
from graphbus_core.deploy.kubernetes import ClusterPlan, Pod, generate_manifests
from graphbus_core.model.powers import Powers
from tests.unit.deploy.test_image_files import PLAIN

ANYWHERE = [{"ipBlock": {"cidr": "0.0.0.0/0"}}, {"ipBlock": {"cidr": "::/0"}}]
HTTPS = [{"port": 443, "protocol": "TCP"}]


def written(powers: Powers, destinations: tuple[str, ...] = ()) -> dict[str, Any]:
    plan = ClusterPlan(
        name="shop",
        namespace="shop",
        image="shop:1",
        command="",
        pods=(Pod(name="shop", component="graph"),),
        powers=powers,
        destinations=destinations,
    )
    return {path: yaml.safe_load(text) for path, text in generate_manifests(plan).items()}


@pytest.mark.parametrize(
    ("network", "egress"),
    [
        (False, []),
        (("localhost", "127.0.0.1"), []),
        (("*",), [{"to": ANYWHERE}]),
        (("10.1.2.3",), [{"to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}]}]),
        (("fd00::1",), [{"to": [{"ipBlock": {"cidr": "fd00::1/128"}}]}]),
        (("api.bank.example", "*.shop.example"), [{"to": ANYWHERE, "ports": HTTPS}]),
    ],
)
def test_the_network_policy_follows_from_the_declared_hosts(network: Any, egress: list[dict[str, Any]]) -> None:
    found = written(Powers(network=network))["networkpolicy.yaml"]["spec"]["egress"]
    names = found[:1] if egress else []
    assert found == [*names, *egress]
    assert not names or names[0]["ports"][0]["port"] == 53


def test_what_a_person_names_takes_the_place_of_the_declared_hosts() -> None:
    found = written(Powers(network=("api.bank.example",)), ("10.0.0.0/8:443",))["networkpolicy.yaml"]["spec"]["egress"]
    assert [rule["to"] for rule in found[1:]] == [[{"ipBlock": {"cidr": "10.0.0.0/8"}}]]


def test_declared_folders_can_be_written_in_image_and_pod() -> None:
    powers = Powers(write=("reports/", "./out/", "/srv/data/", "/tmp/", "log.txt"))
    spec = written(powers)["deployment.yaml"]["spec"]["template"]["spec"]
    mounts = {each["mountPath"]: each["name"] for each in spec["containers"][0]["volumeMounts"]}
    folders = ["/app/reports", "/app/out", "/srv/data"]
    assert set(folders) <= set(mounts)
    assert "/app/log.txt" not in mounts
    volumes = {each["name"]: each for each in spec["volumes"]}
    assert all("emptyDir" in volumes[mounts[folder]] for folder in folders)
    image = render_dockerfile(PLAIN._replace(writable=tuple(folders)))
    assert 'VOLUME ["/var/lib/graphbus", "/app/reports", "/app/out", "/srv/data"]' in image
    assert '"/var/lib/graphbus", "/app/reports", "/app/out", "/srv/data"]\n' in image.partition("VOLUME")[0]
