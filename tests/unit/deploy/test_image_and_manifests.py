"""The image and the manifests are written by two commands, and a pod needs both: they are compared point for point."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from graphbus_core.cli import main
from graphbus_core.hosting import arguments
from tests.fakes.container import Instruction, read
from tests.fakes.kubernetes_documents import write_built


class Written(NamedTuple):
    """The last stage of the Dockerfile, the settings in the image, the spec of the pod, and the settings beside it."""

    image: list[Instruction]
    settings: dict[str, Any]
    pod: dict[str, Any]
    config: dict[str, Any]

    def said(self, word: str) -> Instruction:
        return next(each for each in self.image if each.word == word)


@pytest.fixture(scope="module", params=["plain", "served", "artifacts elsewhere"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    root = write_built("stations", tmp_path_factory.mktemp("project") / "stations")
    artifacts = ".graphbus"
    if request.param == "artifacts elsewhere":
        artifacts = "made/artifacts"
        shutil.move(root / ".graphbus", root / artifacts)
        manifest = root / artifacts / "manifest.json"
        manifest.write_text(manifest.read_text().replace('"project_root": ".."', '"project_root": "../.."'))
    options = [artifacts, *(["--serve"] if request.param == "served" else [])]
    assert main(["-C", str(root), "docker", "build", "--no-build", *options]) == 0
    assert main(["-C", str(root), "k8s", "generate", "-n", "weather", *options]) == 0
    instructions = read((root / "Dockerfile").read_text())
    last = max(number for number, each in enumerate(instructions) if each.word == "FROM")
    return Written(
        image=instructions[last:],
        settings=tomllib.loads((root / "docker/graphbus.toml").read_text()),
        pod=load(root / "k8s/deployment.yaml")["spec"]["template"]["spec"],
        config=load(root / "k8s/configmap.yaml")["data"],
    )


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def differences(written: Written) -> Iterator[str]:
    """Name each point in which a pod would not be what its image is made for."""
    (container,) = written.pod["containers"]
    security = written.pod["securityContext"]
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    env = dict(word.split("=", 1) for each in written.image if each.word == "ENV" for word in each.words)
    health = json.loads(written.said("HEALTHCHECK").rest.partition("CMD ")[2])
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    entry, command = written.said("ENTRYPOINT").words, container["command"]
    started = arguments.read([*entry[4:], *written.said("CMD").words])
    asked = arguments.read(container["args"])
    home = written.said("WORKDIR").rest
    (volume,) = written.said("VOLUME").words
    (made,) = [each.words for each in written.image if each.word == "RUN"]
    config = env["GRAPHBUS_CONFIG"]
    folder, _, name = config.rpartition("/")
    ours = tomllib.loads(written.config.get(name, ""))
    assert started
    assert asked
    points = {
        "program": (entry[:4], command),
        "health": (started.health, asked.health),
        "serve": (started.serve, asked.serve),
        "artifacts": (f"{home}/{started.request.artifacts or '.graphbus'}", asked.request.artifacts),
        "folder": (home, container["workingDir"]),
        "user": (written.said("USER").rest, f"{security['runAsUser']}:{security['runAsGroup']}"),
        "owner of the state": (made[3:7:2], [str(security["runAsUser"]), str(security["fsGroup"])]),
        "ports": (written.said("EXPOSE").words, [str(port) for port in ports.values()]),
        "ports that are listened at": (
            [each.rpartition(":")[2] for each in (started.health, started.serve) if each],
            [str(port) for port in ports.values()],
        ),
        "probe": (health[3:], [str(ports[container["livenessProbe"]["httpGet"]["port"]])]),
        "place of the settings": ([{"name": "GRAPHBUS_CONFIG", "value": config}], container["env"]),
        "settings are mounted": (True, mounts.get(folder, {}).get("readOnly")),
        "state": (volume, ours.get("runtime", {}).get("state_dir")),
        "state in the image": (written.settings["runtime"]["state_dir"], made[-1]),
        "settings of the image are kept": (flat(written.settings), flat(ours) & flat(written.settings)),
        "state is writable": (False, mounts.get(volume, {"readOnly": True}).get("readOnly", False)),
        "no bytecode is written": ("1", env["PYTHONDONTWRITEBYTECODE"]),
        "read-only": (True, container["securityContext"]["readOnlyRootFilesystem"]),
        "signal": ("SIGTERM", written.said("STOPSIGNAL").rest),
    }
    yield from (f"{point}: {ours_} and {theirs}" for point, (ours_, theirs) in points.items() if ours_ != theirs)
    for copied in (each.words[-1] for each in written.image if each.word == "COPY"):
        yield from (f"{path} hides {copied}" for path in mounts if path != folder and covers(path, copied))


def flat(table: dict[str, Any], names: str = "") -> set[tuple[str, str]]:
    """Each setting by its whole name."""
    return {
        each
        for key, value in table.items()
        for each in (flat(value, f"{names}{key}.") if isinstance(value, dict) else {(f"{names}{key}", repr(value))})
    }


def covers(path: str, other: str) -> bool:
    return f"{other}/".startswith(f"{path}/")


def test_a_pod_is_what_its_image_is_made_for(written: Written) -> None:
    assert list(differences(written)) == []


def in_image(word: str, old: str, new: str) -> Callable[[Written], None]:
    def change(written: Written) -> None:
        number = next(number for number, each in enumerate(written.image) if each.word == word and old in each.rest)
        written.image[number] = Instruction(word, written.image[number].rest.replace(old, new))

    return change


def in_container(*path: str | int, value: object) -> Callable[[Written], None]:
    def change(written: Written) -> None:
        *above, last = ("containers", 0, *path)
        place: Any = written.pod
        for key in above:
            place = place[key]
        place[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "point"),
    [
        (in_image("ENTRYPOINT", "graphbus_core.runtime", "graphbus_core"), "program"),
        (in_image("HEALTHCHECK", "8080", "8081"), "probe"),
        (in_image("VOLUME", "/var/lib/graphbus", "/state"), "state"),
        (in_container("args", 0, value="--artifacts=/app/other"), "artifacts"),
        (in_container("volumeMounts", 1, "readOnly", value=True), "state is writable"),
        (in_container("volumeMounts", 2, "mountPath", value="/app"), "/app hides /app"),
        (lambda written: written.settings["runtime"].update(validation="loose"), "settings of the image are kept"),
    ],
)
def test_the_comparison_bites(written: Written, change: Callable[[Written], None], point: str) -> None:
    other = deepcopy(written)
    change(other)
    assert point in " ".join(each.partition(":")[0] for each in differences(other))
