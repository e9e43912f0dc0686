"""What `graphbus docker build` writes is carried out and run: no engine, but every instruction, in folders and by bubblewrap.

Not carried out, for want of a registry: the base is this machine, and the wheel of msgspec is made of the one that is installed
here, so that its hash takes the place of those from the lock.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
import yaml

from graphbus_core import build_graph
from graphbus_core.cli import main
from tests.fakes.container import Builder, Stage, context, start
from tests.patience import PATIENCE_S
from tests.project_files import write_project

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not shutil.which("bwrap") and not os.environ.get("CI"), reason="there is no bwrap on this machine"
    ),
]

NOBODY = 65532
FILES: dict[str, str | bytes] = {
    "pyproject.toml": """
        [project]
        name = "counter"
        version = "1.0"

        [tool.graphbus.runtime]
        grace_s = 5.0
        """,
    "src/shop/__init__.py": "",
    "src/shop/orders.py": """
        from graphbus_core import GraphBusNode
        from shop.deep.down import STEP

        class Orders(GraphBusNode):
            def on_start(self):
                self.state["starts"] = self.state.get("starts", 0) + STEP

            def on_stop(self):
                self.log("good night")
        """,
    "src/shop/deep/__init__.py": "",
    "src/shop/deep/down.py": "STEP = 1\n",
    "src/shop/deep/.env": "SECRET=1\n",
    "src/shop/notes.txt": "private\n",
    "tests/test_orders.py": "",
    ".env": "SECRET=1\n",
    ".git/config": "secret\n",
    ".graphbus/cache/old": "cache\n",
}
ENGINE = """
import json, os, subprocess, sys, time
command, health, missing = json.loads(sys.argv[1])
begun = time.perf_counter()
process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
while True:
    asked = time.perf_counter()
    answer = subprocess.run(health, capture_output=True, text=True)
    if answer.returncode == 0 or process.poll() is not None or asked > begun + 30:
        break
    time.sleep(0.02)
told = {"health": answer.returncode, "said": answer.stdout.strip(), "uid": os.getuid()}
told["ready_s"] = time.perf_counter() - begun
told["health_s"] = time.perf_counter() - asked
told["unwritable"] = []
for path in ("/app/x", "/venv/x", "/bytecode/x", "/etc/graphbus/x", "/x"):
    try:
        open(path, "w").close()
    except OSError:
        told["unwritable"].append(path)
tried = "import importlib.util as u, sys; print(*(name for name in sys.argv[1:] if u.find_spec(name)))"
told["importable"] = subprocess.run(["python", "-c", tried, *missing], capture_output=True, text=True).stdout.split()
ending = time.perf_counter()
process.terminate()
out, err = process.communicate(timeout=30)
told.update(status=process.returncode, ending_s=time.perf_counter() - ending, out=out, err=err)
told["dead"] = subprocess.run(health, capture_output=True).returncode
print(json.dumps(told))
"""
WINGS = ["build", "cli", "compiler", "contracts", "deploy", "editing", "llm", "negotiation", "testing"]
MISSING = ["click", "rich", "networkx", "pydantic_ai", "anthropic", "pip", "pytest"]


def wheel_of(name: str, into: Path) -> Path:
    """Pack a distribution as it is installed here."""
    known = distribution(name)
    tag = re.findall(r"^Tag: (.+)$", known.read_text("WHEEL") or "", re.MULTILINE)[0]
    about = f"{name}-{known.version}.dist-info"
    path = into / f"{name}-{known.version}-{tag}.whl"
    rows = []
    with zipfile.ZipFile(path, "w") as archive:
        for file in known.files or []:
            if (
                file.parts[0] in (name, about)
                and "__pycache__" not in file.parts
                and file.name not in ("RECORD", "INSTALLER")
            ):
                data = file.read_binary()
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                rows.append(f"{file},sha256={digest},{len(data)}")
                archive.writestr(str(file), data)
        archive.writestr(f"{name}/template.py", "def {{ name }}():")  # as some packages have
        archive.writestr(f"{about}/RECORD", "\n".join([*rows, f"{about}/RECORD,,", ""]))
    return path


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_project(tmp_path_factory.mktemp("project"), FILES)
    build_graph(root / "src")
    assert main(["docker", "build", str(root / ".graphbus"), "--no-build"]) == 0
    return root


@pytest.fixture(scope="module")
def seen(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an engine would see of the project."""
    return context(root, (root / ".dockerignore").read_text(), tmp_path_factory.mktemp("seen"))


@pytest.fixture(scope="module")
def image(root: Path, seen: Path, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    home = tmp_path_factory.mktemp("image")
    wheels, site = home / "wheels", home / "site"
    wheels.mkdir()
    site.mkdir()
    shutil.copytree(str(distribution("pip").locate_file("pip")), site / "pip")
    requirements = seen / "docker" / "requirements.txt"
    sha256 = hashlib.sha256(wheel_of("msgspec", wheels).read_bytes()).hexdigest()
    head, pinned, _ = requirements.read_text().partition("msgspec==")
    assert distribution("msgspec").version in requirements.read_text()
    requirements.write_text(f"{head}{pinned}{distribution('msgspec').version} --hash=sha256:{sha256}\n")
    return Builder(home, seen, wheels, site).build((root / "Dockerfile").read_text())


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def told(image: Stage, state: Path) -> dict[str, Any]:
    """What an engine would notice of a container, from start to stop."""
    command = [*image.said["ENTRYPOINT"].words, *image.said["CMD"].words]
    health = json.loads(image.said["HEALTHCHECK"].rest.partition("CMD ")[2])
    missing = [*(f"graphbus_core.{wing}" for wing in WINGS), *MISSING]
    given = json.dumps([command, health, missing])
    user = int(image.said["USER"].rest.partition(":")[0])
    done = subprocess.run(
        start(image, state, ["python", "-c", ENGINE, given], user=user),
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    noticed: dict[str, Any] = json.loads(done.stdout)
    return noticed


def test_a_pod_runs_the_image_as_its_manifests_say(root: Path, image: Stage, tmp_path: Path) -> None:
    assert main(["-C", str(root), "k8s", "generate", "-n", "shop", "-o", str(tmp_path / "k8s")]) == 0
    spec = yaml.safe_load((tmp_path / "k8s/deployment.yaml").read_text())["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    places = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    settings, state = tmp_path / "config", tmp_path / "state"
    settings.mkdir()
    state.mkdir()
    for name, text in yaml.safe_load((tmp_path / "k8s/configmap.yaml").read_text())["data"].items():
        (settings / name).write_text(text)
    port = str(container["ports"][0]["containerPort"])
    health = [
        "python",
        "-m",
        "graphbus_core.hosting.serving.health",
        port,
        container["readinessProbe"]["httpGet"]["path"],
    ]
    given = json.dumps([[*container["command"], *container["args"]], health, []])
    user = spec["securityContext"]["runAsUser"]
    command = ["python", "-c", ENGINE, given]
    done = subprocess.run(
        start(image, state, command, user=user, mounted={places["config"]: settings}),
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert (told["health"], told["uid"], told["status"]) == (0, user, 0), told
    assert "good night" in told["err"]
    assert told["ending_s"] < spec["terminationGracePeriodSeconds"]
    assert names_below(state)


def names_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_nothing_but_what_a_run_needs_reaches_the_engine(seen: Path) -> None:
    artifacts = {
        f".graphbus/{name}.json" for name in ("agents", "graph", "manifest", "modified_files", "negotiations", "topics")
    }
    sources = {f"src/shop/{name}.py" for name in ("__init__", "orders", "deep/__init__", "deep/down")}
    ours = {
        f"docker/{name}" for name in ("graphbus.toml", "requirements.txt", "graphbus_runtime-0.1.0-py3-none-any.whl")
    }
    assert names_below(seen) == artifacts | sources | ours | {"pyproject.toml"}


def test_the_image_holds_the_project_and_the_runtime_alone(image: Stage, seen: Path) -> None:
    assert names_below(image.inside("/app")) == {name for name in names_below(seen) if not name.startswith("docker/")}
    (packages,) = image.inside("/venv/lib").glob("python*/site-packages")
    assert {path.name.partition("-")[0] for path in packages.iterdir()} == {
        "graphbus_core",
        "graphbus_runtime",
        "msgspec",
    }
    assert list(image.inside("/venv").rglob("*.pyc")) == []


def test_the_container_gets_ready_and_says_so(told: dict[str, Any], figure: Callable[[str, object], None]) -> None:
    figure("container: from start to healthy, ms", round(told["ready_s"] * 1000))
    figure("container: health command, ms", round(told["health_s"] * 1000))
    assert (told["health"], told["said"], told["uid"]) == (0, '{"status":"alive"}', NOBODY), told
    assert "[RUNTIME] Loaded 1 agent" in told["out"]
    assert "at http://0.0.0.0:8080/metrics" in told["err"]


def test_it_ends_with_0_when_it_is_told_to(told: dict[str, Any]) -> None:
    assert told["status"] == 0, told
    assert told["ending_s"] < 5
    assert "good night" in told["err"]
    assert told["dead"] == 1


def test_a_container_cannot_import_what_builds(told: dict[str, Any]) -> None:
    assert told["importable"] == []


def test_it_writes_to_its_state_alone(told: dict[str, Any], image: Stage, state: Path) -> None:
    assert told["unwritable"] == ["/app/x", "/venv/x", "/bytecode/x", "/etc/graphbus/x", "/x"]
    assert "state.sqlite" in " ".join(names_below(state))
    assert not image.inside("/app/.graphbus/state").exists()
