"""Dockerfile and ignore file follow from a plan, byte for byte, and a strict reader of Dockerfiles has nothing to say of them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from graphbus_core.deploy.image import ImagePlan, render_dockerfile, render_ignore_file
from graphbus_core.deploy.names import BASES, USER_ID
from tests.patience import PATIENCE_S

GOLDEN = Path(__file__).parents[2] / "golden" / "docker"
"""Renewed by writing there what a failing test shows, e.g. with `python -m tests.unit.deploy.test_image_files`."""
HADOLINT = Path(sys.executable).with_name("hadolint")
BASE = f"registry.example.org/python:3.13-slim@sha256:{'0' * 64}"
PLAIN = ImagePlan(
    command="graphbus docker build",
    base=BASE,
    wheel="graphbus_runtime-0.1.0-py3-none-any.whl",
    artifacts=".graphbus",
    artifact_files=("agents.json", "manifest.json"),
    sources=("agents/__init__.py", "agents/orders.py", "agents/stock/shelf.py", "main.py", "pyproject.toml"),
    labels={"org.opencontainers.image.title": "shop", "org.opencontainers.image.version": "1.4.2"},
)
RICH = PLAIN._replace(
    command="graphbus docker build --serve",
    artifacts="build/graph",
    sources=("src/my shop/orders.py", "src/my shop/odd.py", "pyproject.toml"),
    includes=("data/", "src/prices.json"),
    requirements="requirements/prod.txt",
    third_party=("requests", "yaml"),
    labels={"org.opencontainers.image.title": 'the "best" $hop'},
    is_served=True,
)
PLANS = {"plain": PLAIN, "rich": RICH}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("kind", ["Dockerfile", "dockerignore"])
def test_the_text_is_what_it_was(name: str, kind: str) -> None:
    plan = PLANS[name]
    made = render_dockerfile(plan) if kind == "Dockerfile" else render_ignore_file(plan)
    assert made == (GOLDEN / f"{name}.{kind}").read_text("utf-8")


@pytest.mark.parametrize("name", PLANS)
def test_hadolint_has_nothing_to_say(name: str) -> None:
    assert hadolint(render_dockerfile(PLANS[name])) == ""


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (lambda text: text.replace(f"@sha256:{'0' * 64}", "").replace(":3.13-slim", ""), "DL3006"),
        (lambda text: re.sub(r"^CMD .*", "CMD python -m graphbus_core.runtime", text, flags=re.MULTILINE), "DL3025"),
        (lambda text: text.replace(f"USER {USER_ID}:{USER_ID}", "USER root"), "DL3002"),
    ],
)
def test_hadolint_bites(broken: object, rule: str) -> None:
    assert callable(broken)
    assert rule in hadolint(broken(render_dockerfile(PLAIN)))


def hadolint(text: str) -> str:
    assert shutil.which(str(HADOLINT)), "it is among what `make test` installs"
    command = [str(HADOLINT), "--no-color", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=PATIENCE_S, check=False).stdout


def test_no_instruction_fetches_anything_but_the_base_and_what_has_a_hash() -> None:
    text = render_dockerfile(RICH)
    assert "syntax=" not in text
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == [BASE, "libraries", BASE]
    assert re.findall(r"^ADD |curl|wget|apt-get|https?://", text, re.MULTILINE) == []
    assert text.count("pip --python") == text.count("--require-hashes") == 1


@pytest.mark.parametrize("image", BASES.values())
def test_every_base_is_pinned_by_the_digest_of_a_version(image: str) -> None:
    assert re.fullmatch(r"docker\.io/library/python:3\.\d+\.\d+-slim-trixie@sha256:[0-9a-f]{64}", image)


if __name__ == "__main__":
    for each, its_plan in PLANS.items():
        (GOLDEN / f"{each}.Dockerfile").write_text(render_dockerfile(its_plan), "utf-8")
        (GOLDEN / f"{each}.dockerignore").write_text(render_ignore_file(its_plan), "utf-8")
