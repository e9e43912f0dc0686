"""The Pod Security Standard "restricted", baseline included, as a table: control -> what breaks it.

Source: kubernetes.io/docs/concepts/security/pod-security-standards, as of Kubernetes 1.37. A pod is data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Pod = dict[str, Any]

_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}


def containers(pod: Pod) -> list[Any]:
    return [
        each for key in ("initContainers", "containers", "ephemeralContainers") for each in pod["spec"].get(key, [])
    ]


def _own(container: Any) -> Any:
    return container.get("securityContext") or {}


def _of_all(pod: Pod) -> Any:
    return pod["spec"].get("securityContext") or {}


def _effective(pod: Pod, container: Any, key: str) -> Any:
    return _own(container).get(key, _of_all(pod).get(key))


def _any(test: Callable[[Pod, Any], bool]) -> Callable[[Pod], bool]:
    return lambda pod: any(test(pod, each) for each in containers(pod))


def _drops_all(container: Any) -> bool:
    capabilities = _own(container).get("capabilities") or {}
    return capabilities.get("drop") == ["ALL"] and set(capabilities.get("add", [])) <= {"NET_BIND_SERVICE"}


CONTROLS: dict[str, Callable[[Pod], bool]] = {
    "HostProcess": _any(
        lambda pod, each: bool((_effective(pod, each, "windowsOptions") or {}).get("hostProcess", False))
    ),
    "Host Namespaces": lambda pod: any(pod["spec"].get(key) for key in ("hostNetwork", "hostPID", "hostIPC")),
    "Privileged Containers": _any(lambda _pod, each: bool(_own(each).get("privileged"))),
    "Capabilities": _any(lambda _pod, each: not _drops_all(each)),
    "Host Path Volumes": lambda pod: any("hostPath" in each for each in pod["spec"].get("volumes", [])),
    "Host Ports": _any(lambda _pod, each: any(port.get("hostPort") for port in each.get("ports", []))),
    "Host Probes": _any(
        lambda _pod, each: any(
            (each.get(probe) or {}).get(kind, {}).get("host")
            for probe in ("startupProbe", "readinessProbe", "livenessProbe")
            for kind in ("httpGet", "tcpSocket")
        )
    ),
    "AppArmor": _any(
        lambda pod, each: (_effective(pod, each, "appArmorProfile") or {}).get("type") not in (None, "RuntimeDefault")
    ),
    "SELinux": _any(
        lambda pod, each: bool(set(_effective(pod, each, "seLinuxOptions") or {}) & {"user", "role", "type"})
    ),
    "/proc Mount Type": _any(lambda _pod, each: _own(each).get("procMount", "Default") != "Default"),
    "Seccomp": _any(
        lambda pod, each: (
            (_effective(pod, each, "seccompProfile") or {}).get("type") not in ("RuntimeDefault", "Localhost")
        )
    ),
    "Sysctls": lambda pod: bool(_of_all(pod).get("sysctls")),
    "Volume Types": lambda pod: any(set(each) - {"name"} - _VOLUMES for each in pod["spec"].get("volumes", [])),
    "Privilege Escalation": _any(lambda _pod, each: _own(each).get("allowPrivilegeEscalation") is not False),
    "Running as Non-root": _any(lambda pod, each: _effective(pod, each, "runAsNonRoot") is not True),
    "Running as Non-root user": _any(lambda pod, each: _effective(pod, each, "runAsUser") == 0),
}


def broken_controls(pod: Pod) -> Iterator[str]:
    """Name the controls that a pod breaks."""
    return (name for name, is_broken in CONTROLS.items() if is_broken(pod))
