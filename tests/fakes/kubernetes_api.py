"""As much of the API of Kubernetes as `kubectl apply` and `kubectl rollout status` need, on loopback.

It keeps what it is given, lets dry runs pass without keeping anything, and says of every workload that it is rolled out, unless
`is_stuck`. Old and new kubectl are content with it: from 1.20, the one of Debian 12, they ask for the schemas in three ways.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.patience import PATIENCE_S

KINDS = {
    "v1": {
        "configmaps": "ConfigMap",
        "namespaces": "Namespace",
        "persistentvolumeclaims": "PersistentVolumeClaim",
        "serviceaccounts": "ServiceAccount",
        "services": "Service",
    },
    "apps/v1": {"deployments": "Deployment", "statefulsets": "StatefulSet"},
    "networking.k8s.io/v1": {"networkpolicies": "NetworkPolicy"},
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
}


class Cluster:
    """A cluster that believes everything.

    Attributes:
        objects: Path -> what is kept there.
        writes: (method, path, is it a dry run) of each write.
        refused: Kinds that admission refuses.
        is_stuck: No workload becomes ready.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.writes: list[tuple[str, str, bool]] = []
        self.refused: set[str] = set()
        self.is_stuck = False
        self.server = ""

    def named(self, kind: str) -> dict[str, Any]:
        return next(each for each in self.objects.values() if each["kind"] == kind)

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        found = _discovery(path)
        if found is not None:
            return 200, found
        if method == "GET":
            return self._read(path, query)
        is_dry = query.get("dryRun") == ["All"]
        self.writes.append((method, path, is_dry))
        if body.get("kind") in self.refused:
            return 403, _status(403, "Forbidden", f"{body['kind']} violates PodSecurity")
        place = path if method != "POST" else f"{path}/{body['metadata']['name']}"
        made = _merged(self.objects.get(place, {}), body)
        made["metadata"] = {**made["metadata"], "uid": "u", "resourceVersion": str(len(self.writes)), "generation": 1}
        if made["kind"] == "StatefulSet":
            made["spec"].setdefault("updateStrategy", {"type": "RollingUpdate"})  # as a cluster does
        if made["kind"] in ("Deployment", "StatefulSet"):
            ready = 0 if self.is_stuck else made["spec"]["replicas"]
            made["status"] = {
                "observedGeneration": 1,
                "replicas": 1,
                "updatedReplicas": 1,
                "readyReplicas": ready,
                "availableReplicas": ready,
            }
        if not is_dry:
            self.objects[place] = made
        return (201 if method == "POST" else 200), made

    def _read(self, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        if path in self.objects:
            return 200, self.objects[path]
        below = {key: each for key, each in self.objects.items() if key.rpartition("/")[0] == path}
        if below:
            name = query.get("fieldSelector", [""])[0].removeprefix("metadata.name=")
            items = [each for key, each in below.items() if not name or key.endswith(f"/{name}")]
            kind = f"{items[0]['kind']}List"
            version = items[0]["apiVersion"]
            return 200, {"kind": kind, "apiVersion": version, "metadata": {"resourceVersion": "9"}, "items": items}
        return 404, _status(404, "NotFound", f"{path} not found")


@contextmanager
def running() -> Iterator[Cluster]:
    """A cluster that listens, until the end."""
    cluster = Cluster()
    is_over = threading.Event()

    class Answerer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            raw = self.rfile.read(length)
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
            if query.get("watch"):
                self._watch()
                return
            if parts.path == "/openapi/v2":
                self._send(200, _schemas_as_protobuf())
                return
            status, document = cluster.answer(self.command, parts.path, query, json.loads(raw) if raw else {})
            self._send(status, json.dumps(document).encode())

        do_GET = do_POST = do_PATCH = do_PUT = handle_any

        def _watch(self) -> None:
            """Nothing happens any more; the line stays open until the cluster ends."""
            self.close_connection = True
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("connection", "close")
            self.end_headers()
            is_over.wait(PATIENCE_S)

        def _send(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_given: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answerer)
    cluster.server = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield cluster
    finally:
        is_over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def write_kubeconfig(path: Path, server: str, *, current: str = "testing") -> None:
    """A configuration of kubectl with the context `testing`."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": {"server": server}}],
        "contexts": [{"name": "testing", "context": {"cluster": "here", "user": "nobody"}}],
        "users": [{"name": "nobody", "user": {}}],
        "current-context": current,
    }
    path.write_text(json.dumps(document), encoding="utf-8")


def _discovery(path: str) -> Any:
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        groups = [
            {"name": each.partition("/")[0], "versions": [version], "preferredVersion": version}
            for each in KINDS
            if "/" in each
            for version in [{"groupVersion": each, "version": "v1"}]
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    for version, kinds in KINDS.items():
        where = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if path == where:
            resources = [
                {"name": name, "kind": kind, "namespaced": kind != "Namespace", "verbs": ["get", "list", "create"]}
                for name, kind in kinds.items()
            ]
            return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}
        if path == f"/openapi/v3{where}":
            return {"openapi": "3.0.0", "info": {}, "paths": _validated(version, kinds)}
    if path == "/openapi/v3":
        return {
            "paths": {
                f"{'apis' if '/' in each else 'api'}/{each}": {
                    "serverRelativeURL": f"/openapi/v3/{'apis' if '/' in each else 'api'}/{each}"
                }
                for each in KINDS
            }
        }
    return None


def _validated(version: str, kinds: dict[str, str]) -> dict[str, Any]:
    """That this server judges the fields itself, so that kubectl need not."""
    group, _, number = version.rpartition("/")
    return {
        f"/{name}": {
            "patch": {
                "parameters": [{"name": "fieldValidation", "in": "query"}],
                "x-kubernetes-group-version-kind": {"group": group, "version": number, "kind": kind},
            }
        }
        for name, kind in kinds.items()
    }


def _schemas_as_protobuf() -> bytes:
    """What kubectl before 1.27 asks for: that every kind takes dry runs. There are no fields, so that it judges none.

    A message of `openapi.v2.Document` as gnostic has it; each number below is that of a field.
    """
    dry_run = _message({8: _message({1: _message({2: _message({3: _message({4: b"dryRun"})})})})})
    paths = b""
    for version, kinds in KINDS.items():
        group, _, number = version.rpartition("/")
        for name, kind in kinds.items():
            meaning = json.dumps({"group": group, "version": number, "kind": kind}).encode()
            extension = _message({13: _message({1: b"x-kubernetes-group-version-kind", 2: _message({2: meaning})})})
            paths += _message({2: _message({1: f"/{name}".encode(), 2: _message({8: dry_run + extension})})})
    return _message({1: b"2.0", 2: _message({1: b"testing", 2: b"1"}), 8: paths})


def _message(fields: dict[int, bytes]) -> bytes:
    """Fields of bytes, as protobuf writes them: number and kind, length, content."""
    return b"".join(_varint(number << 3 | 2) + _varint(len(content)) + content for number, content in fields.items())


def _varint(number: int) -> bytes:
    """Seven bits at a time, the lowest first; the highest bit says that more follow."""
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _merged(old: Any, new: Any) -> Any:
    """What a strategic merge patch makes, as far as kubectl sends one here: lists of named things are joined by name."""
    if isinstance(old, dict) and isinstance(new, dict):
        given = {key: each for key, each in new.items() if not key.startswith("$")}
        return {**old, **{key: _merged(old.get(key), each) for key, each in given.items()}}
    if (
        isinstance(old, list)
        and isinstance(new, list)
        and all("name" in each for each in new if isinstance(each, dict))
    ):
        named = {each["name"]: each for each in old if isinstance(each, dict)}
        return [_merged(named.get(each["name"]), each) if isinstance(each, dict) else each for each in new]
    return new


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
