"""What every test has: bounded hypothesis profiles and a way to write a project. The network is blocked in pyproject.toml."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import thoroughness
from tests.project_files import write_project

settings.register_profile("dev", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, database=None)
settings.register_profile("thorough", settings.get_profile("dev"), max_examples=500)
settings.load_profile("dev")

Project = Callable[[Mapping[str, str | bytes]], Path]
Figure = Callable[[str, object], None]
FIGURES = Path(__file__).resolve().parents[1] / ".testreport" / "figures"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take `--thorough`, and `--shard=1/2` for the first of two processes that share the test files."""
    parser.addoption("--thorough", action="store_true", help="try every sample, and many more examples")
    parser.addoption("--shard", default="1/1", metavar="K/N", help="load only the Kth of N parts of the test files")


def pytest_configure(config: pytest.Config) -> None:
    """Choose how much is tried, before any test is loaded, and let Ctrl-C reach the processes that tests start.

    A shell starts what runs in the background with SIGINT ignored, and programs inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    thoroughness.is_thorough = config.getoption("--thorough")
    if thoroughness.is_thorough:
        settings.load_profile("thorough")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the files of other shards out; what is not loaded costs nothing."""
    part, _, parts = config.getoption("--shard").partition("/")
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if is_test and _number(collection_path) % int(parts) != int(part) - 1 else None


@cache
def _numbers() -> dict[Path, int]:
    """Number the test files by size, back and forth, so that each shard has as much as the others."""
    files = sorted(Path(__file__).parent.rglob("test_*.py"), key=lambda path: (path.stat().st_size, path))
    return {path: number + (number // 2) % 2 for number, path in enumerate(files)}


def _number(path: Path) -> int:
    return _numbers().get(path, 0)


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
    """No test leaves state in the home of who runs it; fixtures of any scope have the same key for their seals.

    A pytest that a test starts takes half the time when it does not load the plugins of ours that are installed here.

    An audit hook would stay for ever and, while coverage installs its trace function in a new thread, let another new thread run,
    which Python 3.11 then refuses to trace: a test that needs an audit hook starts a process.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
        patch.setattr(sys, "addaudithook", lambda _hook: None)
        yield


@pytest.fixture(autouse=True)
def _plain_environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests see no keys and no terminal preferences of the machine that runs them."""
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "GRAPHBUS_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    if not request.node.get_closest_marker("measures_children"):
        monkeypatch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
