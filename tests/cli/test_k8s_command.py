"""`graphbus k8s generate`: bad input is refused with a clear word, and nothing is overwritten unasked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from graphbus_core import build_graph
from graphbus_core.cli import main
from tests.conftest import Project
from tests.fakes.kubernetes_documents import STATIONS, write_built

GENERATE = ["k8s", "generate", "--namespace", "weather"]
NODE = "from graphbus_core import GraphBusNode, depends_on, publishes, schema_method, subscribe\n"


@pytest.fixture
def stations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = write_built("stations", tmp_path / "stations")
    monkeypatch.chdir(folder)
    return folder


def read_all(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in sorted(folder.rglob("*.yaml"))}


def the_deployment() -> Any:
    return yaml.safe_load(Path("k8s/deployment.yaml").read_text())


def test_files_are_written_and_what_matters_is_said(stations: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*GENERATE, "--serve"]) == 0
    written = capsys.readouterr()
    assert [line.split() for line in written.out.splitlines()] == [["written", f"k8s/{path}"] for path in FILES]
    assert "State is stored: stations has a volume of 1Gi." in written.err
    assert "secret stations-token in weather, with the token under the key `token`" in written.err
    assert "`graphbus docker build --serve`" in written.err


FILES = [
    "kustomization.yaml",
    "configmap.yaml",
    "deployment.yaml",
    "networkpolicy.yaml",
    "persistentvolumeclaim.yaml",
    "poddisruptionbudget.yaml",
    "service.yaml",
    "serviceaccount.yaml",
]


def test_the_head_says_how_to_write_the_same_again(stations: Path) -> None:
    options = ["--image", "ghcr.io/acme/weather:2", "--allow-from", "a", "--allow-from", "b", "--serve"]
    assert main([*GENERATE, *options, "--output", "x y", "--force"]) == 0
    before = read_all(stations / "x y")
    (command,) = re.findall(r"^#   graphbus (.*)$", before["kustomization.yaml"], re.MULTILINE)
    assert "--force" not in command
    assert "x y" not in command
    assert main([*command.split(), "--output", "again"]) == 0
    assert read_all(stations / "again") == before


def test_other_content_is_not_overwritten_without_force(stations: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(GENERATE) == 0
    before = read_all(stations / "k8s")
    assert main([*GENERATE, "--memory", "512Mi"]) == 8
    assert "GBE701" in capsys.readouterr().err
    assert read_all(stations / "k8s") == before
    assert main([*GENERATE, "--memory", "512Mi", "--check"]) == 8
    assert "GBE706" in capsys.readouterr().err
    assert main([*GENERATE, "--memory", "512Mi", "--force"]) == 0
    assert "+              memory: 512Mi" in capsys.readouterr().err
    assert read_all(stations / "k8s") != before


ON_NATS = ["--topology", "per-agent", "--ledger", "nats://nats/weather"]
VALUES_THAT_A_CLUSTER = [
    (["--namespace", "Production"], "GBE703", "'Production' is not a valid namespace"),
    (["--name", "2fast"], "GBE703", "the name of a service must begin with a letter"),
    (["--image", "stations"], "GBE720", "without a digest or a tag other than `latest`"),
    (["--image", "Stations:1"], "GBE703", "not a valid image reference"),
    (["--memory", "256"], "GBE703", "followed by one of Ki, Mi, Gi"),
    (["--cpu", "100mi"], "GBE703", "'100mi' is not a valid amount of CPU"),
    (["--state", "1"], "GBE703", "'1' is not a valid size of a volume"),
    (["--allow-from", "*"], "GBE703", "'*' is not a valid namespace"),
    (["--allow-egress", "fe80::1%eth0/128"], "GBE703", "an address has no zone"),
    (["--allow-egress", "10.0.0.1/8"], "GBE703", "10.0.0.1/8 has host bits set"),
    (["--allow-egress", "10.0.0.0/8:0"], "GBE703", "a port is a number from 1 to 65535"),
    (["--allow-egress", "db.example.org"], "GBE703", "is not a valid destination"),
    (["--pull-secret", "x_y"], "GBE703", "not a valid name of a secret"),
    (["--ledger", "redis://cache"], "GBE740", "it is neither `sqlite` nor the address of a NATS server"),
    ([*ON_NATS, "--name", "x" * 45], "GBE703", "too many for the pods of a StatefulSet"),
    ([*ON_NATS, "--replicas", "HarbourStation=0"], "GBE703", "AGENT=NUMBER or AGENT=LOWEST..HIGHEST"),
    ([*ON_NATS, "--replicas", "Harbour=2"], "GBE703", "one of the agents HarbourStation, SummitStation"),
    ([*ON_NATS, "--replicas", "HarbourStation=3..2"], "GBE703", "the highest number is below the lowest"),
    ([*ON_NATS, "--replicas", "HarbourStation=1..2"], "GBE703", "HarbourStation subscribes to nothing"),
    ([*ON_NATS, "--monitoring", "nats"], "GBE703", "it must look like HOST:PORT[/ACCOUNT]"),
    (["--topology", "per-agent", "--replicas", "HarbourStation=2"], "GBE728", "each with a bus of its own"),
]


def test_values_that_a_cluster_would_refuse_are_refused_here(
    stations: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options, code, said in VALUES_THAT_A_CLUSTER:
        assert main([*GENERATE, *options]) == 8
        error = capsys.readouterr().err
        assert code in error
        assert said in error
        assert not Path("k8s").exists()


@pytest.mark.parametrize("ledger", ["nats://anna:geheim@nats:4222/weather", "nats://anna:ge/heim@nats", "geheim"])
def test_credentials_are_neither_written_nor_repeated(
    stations: Path, capsys: pytest.CaptureFixture[str], ledger: str
) -> None:
    assert main([*GENERATE, "--ledger", ledger]) == 8
    written = capsys.readouterr()
    assert "GBE740" in written.err
    assert "geheim" not in written.out + written.err
    assert not Path("k8s").exists()


@pytest.mark.parametrize(
    "options",
    [["--replicas", "HarbourStation=2", "--ledger", "nats://nats"], ["--state", "none", "--ledger", "sqlite"]],
)
def test_options_that_contradict_each_other(
    stations: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    assert main([*GENERATE, *options]) == 2
    assert "GBE132" in capsys.readouterr().err


def test_one_pod_of_an_agent_may_be_asked_for_anywhere(stations: Path) -> None:
    assert main([*GENERATE, "--topology", "per-agent", "--replicas", "HarbourStation=1"]) == 0


def test_what_is_left_to_do_on_nats_is_said(stations: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open("pyproject.toml", "a") as settings:
        settings.write('\n[tool.graphbus.runtime.nats]\nshared = ["SummitStation"]\n')
    assert main([*GENERATE, *ON_NATS, "--replicas", "HarbourStation=2", "--replicas", "SummitStation=2"]) == 0
    said = capsys.readouterr().err
    assert (
        "secret stations-ledger in weather, with the address under each of the keys `harbour-station`, `summit-station`: "
        "nats://USER:PASSWORD@nats:4222/"
    ) in said
    assert "`graphbus docker build --nats`" in said
    assert (
        "Several pods: HarbourStation, SummitStation. The pods of an agent share its events in no order, and each has"
        in said
    )
    assert "HarbourStation uses `self.state`: its pods do not see what the others store." in said
    assert "SummitStation uses" not in said


def test_a_divided_agent_has_a_pod_for_each_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(write_built("orders", tmp_path / "orders"))
    for agent, status in (("Pricing", 7), ("Payments", 0)):
        Path("graphbus.toml").write_text(f"[runtime.nats]\npartitions = {{ {agent} = 2 }}\n")
        monkeypatch.setenv("GRAPHBUS_CONFIG", str(Path("graphbus.toml").resolve()))
        capsys.readouterr()
        assert main([*GENERATE, *ON_NATS]) == status
    assert "A pod for each partition: Payments (2)." in capsys.readouterr().err
    assert main([*GENERATE, *ON_NATS, "--replicas", "Checkout=1..3"]) == 8
    assert "Checkout would have 3 pods, each with a state file of its own. [GBE741]" in capsys.readouterr().err
    assert main([*GENERATE, *ON_NATS, "--replicas", "Payments=2"]) == 8
    assert "Payments has 2 partitions, and a pod for each" in capsys.readouterr().err


def test_a_ledger_of_the_settings_counts(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = f'{STATIONS["pyproject.toml"]}\nledger = "nats://nats/weather"'
    root = project({**STATIONS, "pyproject.toml": settings})
    build_graph(root / "stations")
    monkeypatch.chdir(root)
    assert main(GENERATE) == 0
    assert Path("k8s/statefulset.yaml").exists()
    assert "docker build --nats" not in capsys.readouterr().err


def test_sources_that_have_changed_since(stations: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = stations / "stations/summit.py"
    path.write_text(path.read_text() + "\n# more\n")
    assert main(GENERATE) == 6
    assert "stations/summit.py" in capsys.readouterr().err
    assert not Path("k8s").exists()


@pytest.mark.parametrize(
    ("about", "missing"), [("", "`name`"), ('[project]\nname = "x"\ndynamic = ["version"]\n', "`version`")]
)
def test_a_project_without_a_version_needs_an_image(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: Any, about: str, missing: str
) -> None:
    root = project({**STATIONS, "pyproject.toml": about})
    build_graph(root / "stations")
    monkeypatch.chdir(root)
    assert main([*GENERATE, "--name", "weather"]) == 8
    error = capsys.readouterr().err
    assert missing in error
    assert "GBE716" in error
    assert "or pass --image shop:1.4.2" in error
    assert main([*GENERATE, "--name", "weather", "--image", f"a@sha256:{'0' * 64}"]) == 0
    assert "app.kubernetes.io/version" not in the_deployment()["metadata"]["labels"]


SHARING = {
    "an event": (
        "class First(GraphBusNode):\n    def go(self): self.publish('/A/B', {})\n"
        "class Second(GraphBusNode):\n    @subscribe('/A/B')\n    def on(self): ...\n",
        ["First -> Second (/A/B)"],
    ),
    "a dependency and its call": (
        "class First(GraphBusNode):\n    @schema_method(input_schema={})\n    def look(self): ...\n"
        "@depends_on('First')\nclass Second(GraphBusNode):\n    def go(self): self.call('First', 'look')\n",
        ["First -> Second (call of look)", "First -> Second (depends_on)"],
    ),
    "a topic from outside that both hear": (
        "class First(GraphBusNode):\n    @subscribe('/Ex/It')\n    def on(self): ...\n"
        "class Second(GraphBusNode):\n    @subscribe('/Ex/*')\n    def on(self): ...\n",
        ["First and Second both subscribe to /Ex/It"],
    ),
    "a topic that is computed": (
        "class First(GraphBusNode):\n    def go(self, what): self.publish(f'/A/{what}', {})\n"
        "class Second(GraphBusNode):\n    @subscribe('/A/B')\n    def on(self): ...\n",
        ["First -> Second (a computed topic, /A/…)"],
    ),
    "a call that is computed": (
        "class First(GraphBusNode):\n    @schema_method(input_schema={})\n    def look(self): ...\n"
        "class Second(GraphBusNode):\n    def go(self, whom): self.call(whom, 'look')\n",
        ["Second -> First (a computed call)"],
    ),
}


@pytest.mark.parametrize("sharing", SHARING)
def test_agents_that_need_each_other_are_not_parted(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: Any, sharing: str
) -> None:
    text, edges = SHARING[sharing]
    about = '[project]\nname = "x"\nversion = "1"\n[tool.graphbus]\nexternal_topics = ["/Ex/It", "/A/B"]\n'
    root = project({"pyproject.toml": about, "agents/__init__.py": "", "agents/a.py": NODE + text})
    build_graph(root / "agents")
    monkeypatch.chdir(root)
    assert main([*GENERATE, "--topology", "per-agent"]) == 8
    error = capsys.readouterr().err
    for edge in edges:
        assert edge in error
    assert "GBE722" in error
    assert "--topology single" in error
    assert main([*GENERATE, "--topology", "per-agent", "--ledger", "sqlite"]) == 8, "a file is on one host"
    assert main([*GENERATE, *ON_NATS, "--output", "nats"]) == 0
    assert main(GENERATE) == 0


STATEFUL = "def go(self): self.state['n'] = 1"


@pytest.mark.parametrize(
    ("body", "settings", "options", "is_kept"),
    [
        ("pass", "", "", False),
        ("pass", "keep_dead_letters = true", "", True),
        (STATEFUL, "", "", True),
        (STATEFUL, "", "--state none", False),
        ("pass", 'ledger = "sqlite"', "", True),
        ("pass", "", "--ledger sqlite", True),
    ],
)
def test_there_is_a_volume_where_something_is_kept(
    project: Project, body: str, settings: str, options: str, *, is_kept: bool
) -> None:
    about = f'[project]\nname = "x"\nversion = "1"\n[tool.graphbus.runtime]\n{settings}\n'
    text = f"{NODE}class Base(GraphBusNode):\n    {body}\nclass Own(Base):\n    pass\n"
    root = project({"pyproject.toml": about, "agents/__init__.py": "", "agents/a.py": text})
    build_graph(root / "agents")
    assert main(["-C", str(root), *GENERATE, *options.split()]) == 0
    assert (root / "k8s/persistentvolumeclaim.yaml").exists() == is_kept
    assert ('ledger = "sqlite"' in (root / "k8s/configmap.yaml").read_text()) == ("sqlite" in settings + options)
