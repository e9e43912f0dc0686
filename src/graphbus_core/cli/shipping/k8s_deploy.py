"""A kustomization on its way to a cluster, through kubectl: first what goes where, then yes or no, then the rollout."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import click

from graphbus_core.cli import console
from graphbus_core.cli.console import paint, plain
from graphbus_core.cli.shipping import programs
from graphbus_core.deploy.kubernetes.files import KUSTOMIZATION, overlay
from graphbus_core.deploy.kubernetes.plan import check_fixed, parts_of_image
from graphbus_core.errors import DeployError, Place, raise_all

_FIELD = re.compile(r"^(kind|  name|  namespace): (\S+)$", re.MULTILINE)
_LOGGED = re.compile(r'^E\d{4} .* err="(.*)"$')
_TIME = re.compile(r"(?=[^1-9]*[1-9])(?:[0-9]+(?:\.[0-9]+)?[hms])+")
_REPLICAS = re.compile(r"^  (?:replicas|maxReplicas): (\d+)$", re.MULTILINE)
_SCALED = re.compile(r"^  scaleTargetRef:\n(?:    .*\n)*?    name: (\S+)$", re.MULTILINE)
_RECREATES = re.compile(r"^  strategy:\n(?:    .*\n)*?    type: Recreate$", re.MULTILINE)
_WORKLOADS = frozenset(["Deployment", "StatefulSet", "ReplicaSet", "DaemonSet"])
_OURS = ("\n    app.kubernetes.io/managed-by: graphbus\n", "- graphbus_core.runtime\n")
"""One of them is in every workload that holds a bus, though an overlay may have changed its labels."""
_IMAGE = re.compile(r"^ +(?:- )?image: (\S+)$", re.MULTILINE)
_NAMES = (KUSTOMIZATION, "kustomization.yml", "Kustomization")
_MANIFESTS = "manifests.yaml"


class Target(NamedTuple):
    """Where it goes: a context of kubectl's configuration, empty inside of a cluster, and the address of that cluster."""

    context: str
    server: str

    @property
    def options(self) -> tuple[str, ...]:
        """What kubectl is told, so that nobody can switch the context between two commands."""
        return ("--context", self.context) if self.context else ()


class Object(NamedTuple):
    """What is applied.

    Attributes:
        replicas: How many an object or a scaler asks for, at most.
        scaled: The name of what a scaler changes.
        is_graph: It holds a bus.
        is_rolled: A new pod of it begins before the old one has ended.
    """

    kind: str
    name: str
    namespace: str
    replicas: int = 1
    scaled: str = ""
    is_graph: bool = False
    is_rolled: bool = False


class Kubectl:
    """kubectl, for one cluster."""

    def __init__(self, folder: Path, context: str) -> None:
        self._program = programs.find(["kubectl"], otherwise=f"give {folder} to what applies it in your place")
        self._cwd = Path.cwd()
        self.target = self._find_target(context)

    def render(self, folder: Path) -> str:
        """What kustomize makes of a folder.

        Raises:
            DeployError: GBE733.
        """
        place = str(folder) if folder.is_absolute() else f"./{folder}"  # else it may look like an option
        status, text, reason = programs.ask([self._program, "kustomize", place], self._cwd)
        if status:
            raise DeployError("GBE733", where=Place(str(folder)), reason=_without_log(reason))
        return text

    def apply(self, manifests: Path, *options: str) -> None:
        """Apply a file.

        Raises:
            DeployError: GBE705.
        """
        self._run("apply", "-f", str(manifests), *options)

    def follow(self, deployment: Object, timeout: str) -> None:
        """Wait until a deployment runs as it is now, and tell how to find out why it does not.

        Raises:
            DeployError: GBE705.
        """
        inside = ["--namespace", deployment.namespace] if deployment.namespace else []
        name = f"deployment/{deployment.name}"
        try:
            self._run("rollout", "status", name, *inside, f"--timeout={timeout}")
        except DeployError:
            words = " ".join(["kubectl", *self.target.options, *inside])
            console.say(plain(f"Look at it: {words} describe {name}; {words} logs {name}"))
            raise

    def _run(self, *words: str) -> None:
        programs.run([self._program, *words, *self.target.options], self._cwd)

    def _find_target(self, context: str) -> Target:
        if not context:
            status, text, reason = programs.ask([self._program, "config", "current-context"], self._cwd)
            context = text.strip()
            host = os.environ.get("KUBERNETES_SERVICE_HOST")
            if status and host:
                return Target("", f"https://{host}")
            if status:
                raise DeployError("GBE731", reason=reason)
        view = ["config", "view", "--minify", "--context", context, "-o", "jsonpath={.clusters[0].cluster.server}"]
        status, server, reason = programs.ask([self._program, *view], self._cwd)
        if status:
            raise DeployError("GBE731", reason=reason)
        return Target(context, server)


def deploy(
    folder: Path, *, context: str, namespace: str, image: str, is_dry: bool, is_sure: bool, timeout: str
) -> None:
    """Apply a kustomization and wait for its deployments.

    Raises:
        DeployError: GBE704 without kubectl, GBE703 for an image or a time, GBE705 it has failed, GBE721, GBE728-734.
    """
    if not any(os.path.isfile(folder / name) for name in _NAMES):
        raise DeployError("GBE730", where=Place(str(folder)), file=KUSTOMIZATION)
    if not _TIME.fullmatch(timeout):
        reason = "it is one or more numbers, each with h, m or s, and more than nothing"
        raise DeployError("GBE703", value=repr(timeout), kind="time", reason=reason, example="5m")
    if image:
        check_fixed(image)
    kubectl = Kubectl(folder, context)
    with TemporaryDirectory(prefix="graphbus-") as made:
        manifests = Path(made).resolve() / _MANIFESTS
        rendered = _write_manifests(kubectl, folder, image, manifests)
        objects = list(read_objects(rendered))
        _check_namespace(objects, namespace)
        raise_all(_crowds(objects))
        _announce(kubectl.target, objects, read_images(rendered))
        inside = ("--namespace", namespace) if namespace else ()
        if is_dry:
            kubectl.apply(manifests, *inside, "--dry-run=server")
            return
        _make_sure(kubectl.target, is_sure=is_sure)
        kubectl.apply(manifests, *inside)
    for each in objects:
        if each.kind == "Deployment":
            kubectl.follow(each._replace(namespace=each.namespace or namespace), timeout)


def _write_manifests(kubectl: Kubectl, folder: Path, image: str, manifests: Path) -> str:
    """Write what is applied, and give its text: what somebody says yes to is what goes, whatever becomes of the folder."""
    rendered = kubectl.render(folder)
    manifests.write_text(rendered, encoding="utf-8")
    if image:
        names = {parts_of_image(each)[0] for each in read_images(rendered)}
        if len(names) != 1:
            raise DeployError("GBE734", where=Place(str(folder)), names=", ".join(sorted(names)) or "none")
        (manifests.parent / KUSTOMIZATION).write_text(overlay(_MANIFESTS, names.pop(), image), encoding="utf-8")
        rendered = kubectl.render(manifests.parent)
        manifests.write_text(rendered, encoding="utf-8")
    return rendered


def read_objects(rendered: str) -> Iterator[Object]:
    """Kind, name and namespace of each document, as kustomize writes them: two spaces below `metadata`, sorted by name."""
    for document in re.split(r"^---$", rendered, flags=re.MULTILINE):
        own = re.split(r"^(?=[a-z])", document, flags=re.IGNORECASE | re.MULTILINE)
        text = "".join(part for part in own if part.startswith(("kind:", "metadata:")))
        found = {key.strip(): _unquoted(value) for key, value in _FIELD.findall(text)}
        if "kind" in found:
            asked = _REPLICAS.search(document)
            scaled = _SCALED.search(document)
            yield Object(
                found["kind"],
                found.get("name", ""),
                found.get("namespace", ""),
                replicas=int(asked[1]) if asked else 1,
                scaled=_unquoted(scaled[1]) if scaled else "",
                is_graph=found["kind"] in _WORKLOADS and any(sign in document for sign in _OURS),
                is_rolled=found["kind"] == "Deployment" and not _RECREATES.search(document),
            )


def read_images(rendered: str) -> list[str]:
    """The references of all images, each once."""
    return list(dict.fromkeys(map(_unquoted, _IMAGE.findall(rendered))))


def _without_log(reason: str) -> str:
    """What kubectl complains of; some of it comes as a line of its log: `E1121 ... "command failed" err="..."`."""
    logged = _LOGGED.search(reason)
    return logged[1].replace('\\"', '"') if logged else reason


def _unquoted(text: str) -> str:
    return text.strip("\"'")


def _check_namespace(objects: Sequence[Object], namespace: str) -> None:
    found = sorted({each.namespace for each in objects if each.namespace})
    if namespace and found != [namespace]:
        raise DeployError("GBE729", namespace=namespace, found=", ".join(found) or "none")


def _crowds(objects: Sequence[Object]) -> Iterator[DeployError]:
    graphs = {each.name for each in objects if each.is_graph}
    for each in objects:
        crowded = each.scaled or (each.name if each.is_graph else "")
        if crowded in graphs and each.replicas > 1:
            yield DeployError("GBE728", name=crowded, replicas=each.replicas)
        if each.is_graph and each.is_rolled:
            yield DeployError("GBE721", name=each.name)


def _announce(target: Target, objects: Sequence[Object], images: Sequence[str]) -> None:
    context = f"context {target.context}" if target.context else "the cluster around this container"
    console.say(f"{paint('To', 'strong')} {plain(context)}, {plain(target.server)}:")
    for each in objects:
        inside = f" in {each.namespace}" if each.namespace else ""
        console.say(plain(f"  {each.kind} {each.name}{inside}"))
    console.say(plain(f"  with {', '.join(images)}"))


def _make_sure(target: Target, *, is_sure: bool) -> None:
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise DeployError("GBE732", target=target.context or target.server)
    click.confirm("Apply it?", abort=True, err=True)
