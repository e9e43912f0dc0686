"""A kustomization on its way to a cluster, through kubectl: first what goes where, then yes or no, then the rollout."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
_TIME = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[hms])+")
_REPLICAS = re.compile(r"^  replicas: (\d+)$", re.MULTILINE)
_OURS = "\n    app.kubernetes.io/managed-by: graphbus\n"
_IMAGE = re.compile(r"^ +(?:- )?image: (\S+)$", re.MULTILINE)


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
        replicas: Of a graph of ours; 1 for everything else.
    """

    kind: str
    name: str
    namespace: str
    replicas: int = 1


class Kubectl:
    """kubectl, for one folder and one cluster."""

    def __init__(self, folder: Path, context: str) -> None:
        self._program = programs.find(["kubectl"], otherwise=f"give {folder} to what applies it in your place")
        self._folder = folder
        self._cwd = Path.cwd()
        self.target = self._find_target(context)

    def render(self) -> str:
        """What kustomize makes of the folder.

        Raises:
            DeployError: GBE733.
        """
        status, text, reason = programs.ask([self._program, "kustomize", str(self._folder)], self._cwd)
        if status:
            raise DeployError("GBE733", where=Place(str(self._folder)), reason=_without_log(reason))
        return text

    def apply(self, *options: str) -> None:
        """Apply the folder.

        Raises:
            DeployError: GBE705.
        """
        self._run("apply", "-k", str(self._folder), *options)

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
        DeployError: GBE704 without kubectl, GBE703 for an image or a time, GBE705 it has failed, GBE728-734.
    """
    if not (folder / KUSTOMIZATION).is_file():
        raise DeployError("GBE730", where=Place(str(folder)), file=KUSTOMIZATION)
    if not _TIME.fullmatch(timeout):
        reason = "it is one or more numbers, each with h, m or s"
        raise DeployError("GBE703", value=repr(timeout), kind="time", reason=reason, example="5m")
    if image:
        check_fixed(image)
    with _with_image(folder, image, Kubectl(folder, context)) as kubectl:
        rendered = kubectl.render()
        objects = list(read_objects(rendered))
        _check_namespace(objects, namespace)
        raise_all(_crowds(objects))
        _announce(kubectl.target, objects, read_images(rendered))
        if is_dry:
            kubectl.apply("--dry-run=server")
            return
        _make_sure(kubectl.target, is_sure=is_sure)
        kubectl.apply()
        for each in objects:
            if each.kind == "Deployment":
                kubectl.follow(each, timeout)


@contextmanager
def _with_image(folder: Path, image: str, kubectl: Kubectl) -> Iterator[Kubectl]:
    """Lay an overlay with another image over the folder, for as long as this lasts; the folder stays as it is."""
    if not image:
        yield kubectl
        return
    names = {parts_of_image(each)[0] for each in read_images(kubectl.render())}
    if len(names) != 1:
        raise DeployError("GBE734", where=Place(str(folder)), names=", ".join(sorted(names)) or "none")
    with TemporaryDirectory(prefix="graphbus-") as made:
        place = Path(made).resolve()
        base = Path(os.path.relpath(folder.resolve(), place)).as_posix()
        (place / KUSTOMIZATION).write_text(overlay(base, names.pop(), image), encoding="utf-8")
        yield Kubectl(place, kubectl.target.context)


def read_objects(rendered: str) -> Iterator[Object]:
    """Kind, name and namespace of each document, as kustomize writes them: two spaces below `metadata`, sorted by name."""
    for document in re.split(r"^---$", rendered, flags=re.MULTILINE):
        own = re.split(r"^(?=[a-z])", document, flags=re.IGNORECASE | re.MULTILINE)
        text = "".join(part for part in own if part.startswith(("kind:", "metadata:")))
        found = {key.strip(): _unquoted(value) for key, value in _FIELD.findall(text)}
        if "kind" in found:
            asked = _REPLICAS.search(document) if _OURS in text else None
            replicas = int(asked[1]) if asked else 1
            yield Object(found["kind"], found.get("name", ""), found.get("namespace", ""), replicas)


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
    return (DeployError("GBE728", name=each.name, replicas=each.replicas) for each in objects if each.replicas > 1)


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
