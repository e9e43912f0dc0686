"""What generated pipelines take from others: each by its digest, because a tag can be moved, with the version for people.

A bot for updates (Dependabot, Renovate) reads both and moves them together. Every pair here was seen in several independent
public repositories.
"""

from __future__ import annotations

from graphbus_core.deploy.yaml import Noted

RUNNER = "ubuntu-24.04"
"""`ubuntu-latest` becomes another system on a day that nobody here has chosen."""

_ACTIONS = {
    "actions/checkout": ("3d3c42e5aac5ba805825da76410c181273ba90b1", "v7.0.1"),
    "actions/setup-python": ("5fda3b95a4ea91299a34e894583c3862153e4b97", "v7.0.0"),
    "actions/upload-artifact": ("043fb46d1a93c77aae656e7c1c64a875d1fc6a0a", "v7.0.1"),
    "actions/download-artifact": ("3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c", "v8.0.1"),
}
DOCKER_CLIENT = "docker:29.8.1-cli@sha256:018edbc908e08fcc9dbf029c812c34251e9b4719e6f71ca0e5eae2a987d014ca"
DOCKER_ENGINE = "docker:29.8.1-dind@sha256:3f3c01aaaebf7cce837356b688b7c059a4749f10bd7660dec7c58fc454a283f0"


def action(name: str) -> Noted:
    """Give what stands behind `uses:`."""
    commit, version = _ACTIONS[name]
    return Noted(f"{name}@{commit}", version)
