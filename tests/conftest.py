"""What every test has: bounded hypothesis profiles and a way to write a project. The network is blocked in pyproject.toml."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.project_files import write_project

settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), max_examples=100, derandomize=True, database=None)
settings.load_profile("dev")

Project = Callable[[Mapping[str, str | bytes]], Path]
Figure = Callable[[str, object], None]
FIGURES = Path(__file__).resolve().parents[1] / ".testreport" / "figures"


def pytest_collection_finish() -> None:
    """The tests themselves stay to the end: no collection of garbage need look at thousands of them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Write a project into an empty folder: `root = project({"agents/a.py": "..."})`; further calls add files to it."""

    def write(files: Mapping[str, str | bytes]) -> Path:
        return write_project(tmp_path, files)

    return write


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Figure:
    """Print a measured figure, `figure("bad edits that reached a file", "0 of 152")`; `make test` shows them all at its end."""
    name = request.node.nodeid.replace("/", ".").replace("::", "-")[:150]

    def show(what: str, value: object) -> None:
        line = f"{what}: {value}"
        print(line)
        FIGURES.mkdir(parents=True, exist_ok=True)
        with (FIGURES / f"{name}.txt").open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    return show


@pytest.fixture(scope="session", autouse=True)
def _state_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test leaves state in the home of who runs it; fixtures of any scope have the same key for their seals."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
        yield


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests see no keys and no terminal preferences of the machine that runs them."""
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "GRAPHBUS_CONFIG"):
        monkeypatch.delenv(name, raising=False)
