"""`graphbus k8s deploy`: the real kubectl against as much of a cluster as it needs; it says where things go before they go."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graphbus_core.cli import main
from tests.fakes.kubernetes_api import Cluster, running, write_kubeconfig
from tests.fakes.kubernetes_documents import generated
from tests.fakes.typing_person import Person
from tests.patience import PATIENCE_S

KUBECTL = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(not KUBECTL and not os.environ.get("CI"), reason="kubectl is not installed")
CREATED = ["ServiceAccount", "ConfigMap", "Service", "PersistentVolumeClaim", "Deployment", "PodDisruptionBudget"]


def write_case(case: str, folder: Path) -> None:
    for path, text in generated(case).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with manifests, and a configuration of kubectl that knows no cluster."""
    write_case("orders", tmp_path / "k8s")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cluster(place: Path) -> Iterator[Cluster]:
    with running() as made:
        write_kubeconfig(place / "kubeconfig", made.server)
        yield made


@pytest.mark.slow
@needs_kubectl
def test_a_dry_run_asks_the_cluster_and_changes_nothing(cluster: Cluster, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["k8s", "deploy", "--dry-run"]) == 0
    said = capfd.readouterr().err
    assert said.index("To the context testing (http://127.0.0.1:") < said.index("$ ")
    assert "  Deployment graphbus-orders in production\n" in said
    assert "  with graphbus-orders:0.1.0\n" in said
    assert "deployment.apps/graphbus-orders created (server dry run)" in said
    assert len(cluster.writes) == 7
    assert all(is_dry for _, _, is_dry in cluster.writes)
    assert cluster.objects == {}


@pytest.mark.slow
@needs_kubectl
def test_with_yes_everything_is_applied_and_the_rollout_awaited(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["k8s", "deploy", "--yes", "--namespace", "production"]) == 0
    assert 'deployment "graphbus-orders" successfully rolled out' in capfd.readouterr().err
    assert {each["kind"] for each in cluster.objects.values()} == {*CREATED, "NetworkPolicy"}
    assert cluster.named("Deployment")["spec"]["replicas"] == 1


@pytest.mark.slow
@needs_kubectl
def test_another_image_takes_the_place_and_the_folder_stays_as_it_is(cluster: Cluster, place: Path) -> None:
    before = {path: path.read_bytes() for path in (place / "k8s").iterdir()}
    image = f"ghcr.io/acme/orders@sha256:{'ab' * 32}"
    assert main(["k8s", "deploy", "--yes", "--image", image]) == 0
    (container,) = cluster.named("Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == image
    assert {path: path.read_bytes() for path in (place / "k8s").iterdir()} == before


@needs_kubectl
def test_without_a_terminal_nothing_is_applied_unless_yes_is_said(
    cluster: Cluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert main(["k8s", "deploy"]) == 8
    assert "Deploying to the context testing (http://127.0.0.1:" in capfd.readouterr().err
    assert cluster.writes == []


@pytest.mark.slow
@needs_kubectl
@pytest.mark.parametrize(("answer", "status", "writes"), [("n", 130, 0), ("y", 0, 7)])
def test_a_person_is_asked(cluster: Cluster, place: Path, answer: str, status: int, writes: int) -> None:
    with Person(["k8s", "deploy"], place) as person:
        person.sees("Apply it? [y/N]", 60)
        assert cluster.writes == []
        person.types(answer)
        assert person.leaves(timeout_s=PATIENCE_S) == status
    assert len(cluster.writes) == writes


@needs_kubectl
@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["nowhere"], "GBE730", "There is no kustomization.yaml in this folder."),
        (["--context", "other"], "GBE731", "kubectl has no cluster to deploy to: "),
        (["--image", "orders:latest"], "GBE720", "its name may later refer to a different image"),
        (["--timeout", "soon"], "GBE703", "'soon' is not a valid time: it must be one or more numbers"),
        (["--namespace", "staging"], "GBE729", "for the namespace staging, but they use: production"),
    ],
)
def test_refusals(
    cluster: Cluster, capfd: pytest.CaptureFixture[str], options: list[str], code: str, said: str
) -> None:
    assert main(["k8s", "deploy", "--yes", *options]) == 8
    error = capfd.readouterr().err
    assert code in error
    assert said in error
    assert cluster.writes == []


@needs_kubectl
def test_a_folder_that_kustomize_does_not_understand(
    cluster: Cluster, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (place / "k8s/service.yaml").unlink()
    assert main(["k8s", "deploy", "--yes"]) == 8
    error = capfd.readouterr().err
    assert "k8s: error: kustomize cannot render this folder: " in error
    assert "service.yaml" in error


def ask_for_two(folder: Path, workload: str = "deployment") -> None:
    path = folder / f"{workload}.yaml"
    path.write_text(path.read_text().replace("  replicas: 1", "  replicas: 2"))


def scale(folder: Path) -> None:
    add_scaler(folder, "autoscaling/v1", "HorizontalPodAutoscaler", maxReplicas=2)


def scale_by_keda(folder: Path) -> None:
    add_scaler(folder, "keda.sh/v1alpha1", "ScaledObject", maxReplicaCount=2)


def add_scaler(folder: Path, version: str, kind: str, **most: int) -> None:
    path = folder / "kustomization.yaml"
    path.write_text(f"{path.read_text()}  - scaler.yaml\n")
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "graphbus-orders"}
    scaler = {"apiVersion": version, "kind": kind, "metadata": {"name": "more"}}
    (folder / "scaler.yaml").write_text(json.dumps({**scaler, "spec": {"scaleTargetRef": target, **most}}))


@needs_kubectl
@pytest.mark.parametrize("crowding", [ask_for_two, scale, scale_by_keda])
def test_what_makes_two_buses_of_one_is_refused(
    cluster: Cluster, place: Path, capfd: pytest.CaptureFixture[str], crowding: Callable[[Path], None]
) -> None:
    crowding(place / "k8s")
    assert main(["k8s", "deploy", "--yes"]) == 8
    error = capfd.readouterr().err
    assert "graphbus-orders would have 2 replicas, each with a bus of its own. [GBE728]" in error
    assert cluster.writes == []


@pytest.mark.slow
@needs_kubectl
def test_pods_on_nats_may_be_several_and_are_awaited(
    cluster: Cluster, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_case("stations-nats-served", place / "nats")
    ask_for_two(place / "nats", "statefulset")
    assert main(["k8s", "deploy", "nats", "--yes"]) == 0
    assert "rollout status statefulset/stations" in capfd.readouterr().err
    assert cluster.named("StatefulSet")["spec"]["replicas"] == 2


@pytest.mark.slow
@needs_kubectl
def test_what_was_shown_is_applied_whatever_becomes_of_the_folder_meanwhile(cluster: Cluster, place: Path) -> None:
    with Person(["k8s", "deploy"], place) as person:
        person.sees("Apply it? [y/N]", 60)
        ask_for_two(place / "k8s")
        person.types("y")
        assert person.leaves(timeout_s=PATIENCE_S) == 0
    assert cluster.named("Deployment")["spec"]["replicas"] == 1


@pytest.mark.slow
@needs_kubectl
def test_what_names_no_namespace_goes_to_the_one_that_is_given(cluster: Cluster, place: Path) -> None:
    path = place / "k8s/kustomization.yaml"
    path.write_text(path.read_text().replace("namespace: production\n", ""))
    path = place / "k8s/configmap.yaml"
    path.write_text(path.read_text().replace("  namespace: production\n", ""))
    assert main(["k8s", "deploy", "--yes", "--namespace", "production"]) == 0
    assert {each["metadata"]["namespace"] for each in cluster.objects.values()} == {"production"}


def test_a_kubectl_that_is_killed_is_told_from_one_that_fails(
    place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(place, monkeypatch, "apply) kill -KILL $$;;")
    assert main(["k8s", "deploy", "--yes"]) == 8
    err = capfd.readouterr().err
    assert "`kubectl apply` failed with exit status 137 (killed by SIGKILL). [GBE705]" in err
    assert "It may have run out of memory." in err


HEARING = """
import runpy, signal

signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("graphbus_core", run_name="__main__", alter_sys=True)
"""
"""The command, which hears Ctrl-C also where the tests are run in the background of a shell that ignores it."""


@pytest.mark.slow
def test_a_kubectl_that_hangs_ends_with_the_command(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(place, monkeypatch, "apply) echo $$ > hangs; exec sleep 600;;")
    monkeypatch.setenv("TMPDIR", str(place / "tmp"))
    (place / "tmp").mkdir()
    command = [sys.executable, "-c", HEARING, "k8s", "deploy", "--yes"]
    with subprocess.Popen(command, cwd=place, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        hanging = wait_for(place / "hangs")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does for Ctrl-C
        assert process.wait(PATIENCE_S) == 130
    deadline = time.monotonic() + PATIENCE_S
    while runs(hanging):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert list((place / "tmp").iterdir()) == []


def stand_in(place: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """A kubectl that knows a context and renders a kustomization, and does something else in one case."""
    program = place / "bin/kubectl"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\ncase $1 in\n{case}\nconfig) echo here;;\nkustomize) echo "kind: ConfigMap";;\nesac\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def runs(process: int) -> bool:
    """A dead one that nobody has asked for does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(path: Path) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return int(path.read_text())


def test_without_kubectl_the_folder_is_for_somebody_else(
    place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert main(["k8s", "deploy"]) == 8
    error = capfd.readouterr().err
    assert "kubectl was not found on PATH. [GBE704]" in error
    assert "apply the manifests in k8s with another tool" in error


KUBECTL = """#!/bin/sh
case "$*" in
  "config current-context") [ -n "$CURRENT" ] || { echo 'error: current-context is not set' >&2; exit 1; }; echo "$CURRENT" ;;
  "config view --minify --context shop"*) printf https://shop.example ;;
  *) echo 'error: unknown' >&2; exit 1 ;;
esac
"""


@pytest.mark.parametrize(
    ("context", "variables", "target"),
    [
        ("", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "the cluster around this container, https://10.0.0.1"),
        ("", {"CURRENT": "shop"}, "the context shop (https://shop.example)"),
        ("shop", {}, "the context shop (https://shop.example)"),
        ("", {}, "GBE731"),
        ("other", {}, "GBE731"),
    ],
)
def test_the_cluster_is_the_one_of_the_context_or_the_one_around_a_container(
    place: Path, monkeypatch: pytest.MonkeyPatch, *, context: str, variables: dict[str, str], target: str
) -> None:
    from graphbus_core.cli.k8s import _Kubectl
    from graphbus_core.errors import DeployError

    (place / "bin").mkdir()
    (place / "bin" / "kubectl").write_text(KUBECTL)
    (place / "bin" / "kubectl").chmod(0o755)
    for name, value in {"PATH": f"{place / 'bin'}:/usr/bin:/bin", **variables}.items():
        monkeypatch.setenv(name, value)
    if target == "GBE731":
        with pytest.raises(DeployError, match=target):
            _Kubectl(Path("k8s"), context)
    else:
        assert _Kubectl(Path("k8s"), context).target == target
