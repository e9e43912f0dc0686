"""The six stages on real artifacts: what runs, and what each kind of bad input gets."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from graphbus_core import LiveGraph, build_graph, run_graph, runtime
from graphbus_core.errors import ArtifactError, GraphBusError, RunError, SeveralErrors
from graphbus_core.model.config import RuntimeConfig
from tests.conftest import Project

HELLO = """
    from graphbus_core import GraphBusNode, schema_method, subscribe

    class Hello(GraphBusNode):
        def on_start(self):
            self.heard = []

        def on_stop(self):
            with open("stopped.txt", "a") as file:
                file.write("Hello ")

        @schema_method(input_schema={"name": str}, output_schema={"text": str})
        def greet(self, name: str) -> dict:
            self.publish("/Hello/Said", {"text": f"Hello, {name}!"})
            return {"text": f"Hello, {name}!"}

        @subscribe("/Hello/Said")
        def on_said(self, event):
            self.heard.append(event["text"])
    """
MAIN = """
    def run(graph):
        return graph.call("Hello", "greet", name="you")

    def bare():
        return "bare"

    async def slow(graph):
        return graph.call("Hello", "greet", name="async")

    def fail():
        raise OSError("no paper")

    def refuse(graph):
        graph.call("Helo", "greet")

    def two(graph, more=1):
        return more

    class Tool:
        def __call__(self):
            return "called"

    tool = Tool()
    number = 3
    """


@pytest.fixture
def hello(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = project({"pyproject.toml": "", "agents/hello.py": HELLO, "main.py": MAIN})
    monkeypatch.chdir(root)
    build_graph("agents")
    before = (list(sys.path), set(sys.modules))
    yield root
    assert sys.path == before[0]
    assert not {name for name in set(sys.modules) - before[1] if name.partition(".")[0] in ("agents", "main")}


def run(entrypoint: str = "", **options: object) -> runtime.RuntimeResult:
    return runtime.run_runtime_pipeline(RuntimeConfig(entrypoint=entrypoint, **options))


def test_a_built_graph_is_started_called_and_stopped(hello: Path) -> None:
    with run_graph() as graph:
        assert isinstance(graph, LiveGraph)
        assert graph.call("Hello", "greet", name="you") == {"text": "Hello, you!"}
        assert graph.node("Hello").heard == ["Hello, you!"]
    assert (hello / "stopped.txt").read_text() == "Hello "


@pytest.mark.parametrize(
    ("entrypoint", "value"),
    [
        ("main:run", {"text": "Hello, you!"}),
        ("main:bare", "bare"),
        ("main:slow", {"text": "Hello, async!"}),
        ("main:two", 1),
        ("main:tool", "called"),
        ("main:Tool.__call__", None),
        ("", None),
    ],
)
def test_the_entry_point_is_called_with_the_graph_if_it_takes_it(hello: Path, entrypoint: str, value: object) -> None:
    result = run(entrypoint)
    assert result.value == (value if entrypoint != "main:Tool.__call__" else "called")
    assert result.dead_letters == ()
    assert (hello / "stopped.txt").read_text() == "Hello "


@pytest.mark.parametrize(
    ("entrypoint", "code", "told"),
    [
        ("main", "GBE606", "package.module:function"),
        ("main:", "GBE606", "package.module:function"),
        (":run", "GBE606", "package.module:function"),
        ("nowhere:run", "GBE606", "No module named 'nowhere'"),
        ("main:rum", "GBE606", "(did you mean 'run'?)"),
        ("main:number", "GBE606", "main has no function 'number'"),
        ("main:number.real", "GBE606", "main has no function 'number.real'"),
        ("main:fail", "GBE607", "OSError: no paper"),
        ("main:refuse", "GBE620", "Did you mean 'Hello'?"),
    ],
)
def test_an_entry_point_that_fails_is_reported_after_the_graph_was_stopped(
    hello: Path, entrypoint: str, code: str, told: str
) -> None:
    with pytest.raises(RunError) as refused:
        run(entrypoint)
    assert refused.value.code == code
    assert told in str(refused.value)
    assert (hello / "stopped.txt").read_text() == "Hello "


def test_the_ready_lines_are_those_of_the_seed(hello: Path) -> None:
    lines: list[str] = []
    runtime.run_runtime_pipeline(
        RuntimeConfig(), on_ready=lambda graph, built: lines.extend(runtime.ready_lines(built))
    )
    assert lines == [
        "[RUNTIME] Loaded 1 agent, 1 topic, 1 subscription",
        "[RUNTIME] Ready. Zero LLM calls will be made during execution.",
    ]


def test_a_failed_handler_of_a_run_with_an_end_is_an_error(hello: Path, project: Project) -> None:
    project({"agents/hello.py": HELLO.replace('self.heard.append(event["text"])', 'event["texxt"]')})
    build_graph("agents")
    result = run("main:run")
    with pytest.raises(RunError) as refused:
        runtime.raise_for_dead_letters(result)
    assert refused.value.code == "GBE630"
    assert "1 delivery failed" in refused.value.sentence
    assert "Hello.on_said on /Hello/Said: KeyError: 'texxt'" in refused.value.sentence
    assert str(refused.value.where).startswith(f"{hello / 'agents' / 'hello.py'}:")


def test_source_that_changed_since_the_build_is_refused_unless_it_is_allowed(hello: Path) -> None:
    with (hello / "agents" / "hello.py").open("a") as file:
        file.write("# later\n")
    with pytest.raises(ArtifactError) as refused:
        run_graph()
    assert refused.value.code == "GBE508"
    assert str(refused.value.where) == "agents/hello.py"
    with run_graph(allow_drift=True) as graph:
        assert graph.nodes


def test_missing_artifacts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="GBE501"):
        run_graph(tmp_path / ".graphbus")


def refused_start(
    root: Path, files: dict[str, str], project: Project, *, drift: dict[str, str] | None = None
) -> GraphBusError:
    """Build these files, then change some, and give what starting them is refused with."""
    project({"pyproject.toml": "", **files})
    build_graph(root / "agents")
    project(drift or {})
    with pytest.raises(GraphBusError) as refused:
        run_graph(root / ".graphbus", allow_drift=True)
    return refused.value


AGENT = "from graphbus_core import GraphBusNode\nclass {name}(GraphBusNode):\n    pass\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "x = 1\nimport no_such_module\n",
            ("GBE601", "agents/a.py:2", "ModuleNotFoundError: No module named 'no_such"),
        ),
        ("def broken(:\n", ("GBE601", "agents/a.py:1", "SyntaxError: invalid syntax")),
        ("def f():\n    return {}['x']\nf()\n", ("GBE601", "agents/a.py:2", "KeyError: 'x'")),
        ("raise SystemExit('bye')\n", ("GBE601", "agents/a.py:1", "SystemExit: bye")),
        ("class Aa: ...\n", ("GBE602", "agents/a.py:2", "no agent class A")),
        ("A = 3\n", ("GBE602", "agents/a.py:2", "no agent class A")),
    ],
)
def test_a_module_that_cannot_be_used_is_refused_with_its_line(
    tmp_path: Path, project: Project, text: str, expected: tuple[str, str, str]
) -> None:
    error = refused_start(tmp_path, {"agents/a.py": AGENT.format(name="A")}, project, drift={"agents/a.py": text})
    assert (error.code, str(error.where)) == expected[:2]
    assert expected[2] in error.sentence


def test_all_modules_that_cannot_be_used_are_reported_and_nothing_stays_imported(
    tmp_path: Path, project: Project
) -> None:
    path, modules = list(sys.path), set(sys.modules)
    files = {f"agents/{name}.py": AGENT.format(name=name.upper()) for name in "abcd"}
    drift = {"agents/a.py": "import no_a", "agents/c.py": "import no_c", "agents/d.py": ""}
    error = refused_start(tmp_path, files, project, drift=drift)
    assert isinstance(error, SeveralErrors)
    assert [each.code for each in error.errors] == ["GBE601", "GBE601", "GBE602"]
    assert sys.path == path
    assert set(sys.modules) - modules == set()


@pytest.mark.parametrize("name", ["json", "sys"])
def test_an_agent_in_a_module_that_is_called_like_another_one_is_refused(
    tmp_path: Path, project: Project, name: str
) -> None:
    project({"pyproject.toml": "", f"{name}.py": AGENT.format(name="A")})
    build_graph(tmp_path / f"{name}.py")
    with pytest.raises(RunError) as refused:
        run_graph(tmp_path / ".graphbus")
    assert refused.value.code == "GBE604"
    assert f"{name}.py" in refused.value.sentence


def test_a_package_that_takes_the_name_of_another_projects_is_refused(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(
        {
            "one/pyproject.toml": "",
            "one/agents/a.py": AGENT.format(name="A"),
            "two/agents/__init__.py": "",
            "two/agents/b.py": "",
        }
    )
    build_graph(tmp_path / "one" / "agents")
    monkeypatch.syspath_prepend(str(tmp_path / "two"))
    import_module("agents.b")

    try:
        with pytest.raises(RunError) as refused:
            run_graph(tmp_path / "one" / ".graphbus")
        assert refused.value.code == "GBE604"
        assert str(tmp_path / "two") in refused.value.sentence
    finally:
        for module in ("agents", "agents.b"):
            del sys.modules[module]


def test_agents_below_src_and_in_packages_are_found(tmp_path: Path, project: Project) -> None:
    project(
        {
            "pyproject.toml": "",
            "src/my_shop/__init__.py": "",
            "src/my_shop/agents/__init__.py": "",
            "src/my_shop/agents/a.py": "from my_shop.words import WORD\n" + AGENT.format(name="A"),
            "src/my_shop/words.py": "WORD = 'x'",
        }
    )
    build_graph(tmp_path / "src")
    with run_graph(tmp_path / ".graphbus") as graph:
        assert type(graph.nodes["A"]).__module__ == "my_shop.agents.a"


TALKER = """
    from graphbus_core import GraphBusNode, schema_method, subscribe

    TYPES = dict(kind=str)

    class Talker(GraphBusNode):
        @schema_method(input_schema={"kind": str}, output_schema={})
        def say(self, kind: str) -> None:
            self.publish(f"/Said/{kind}", {"kind": kind})

        @schema_method(input_schema=dict(TYPES), output_schema={})
        def computed(self, kind: str) -> None:
            self.publish("/Never/Heard", {"kind": kind})

        @subscribe("/Heard/*")
        def on_heard(self, event):
            pass
    """


@pytest.fixture
def talker(project: Project, tmp_path: Path) -> Iterator[LiveGraph]:
    settings = '[tool.graphbus]\nexternal_topics = ["/Out/**"]\n'
    project({"pyproject.toml": settings, "agents/talker.py": TALKER})
    build_graph(tmp_path / "agents")
    with run_graph(tmp_path / ".graphbus") as graph:
        yield graph


@pytest.mark.parametrize("topic", ["/Said/x", "/Never/Heard", "/Heard/y", "/Out/Side/There"])
def test_a_topic_with_an_agent_or_the_outside_at_one_end_may_be_published(talker: LiveGraph, topic: str) -> None:
    talker.publish(topic, {"kind": "x"})
    assert talker.bus.history()[-1].topic == topic


@pytest.mark.parametrize(("topic", "told"), [("/Never/Herd", "Did you mean '/Never/Heard'?"), ("/Else/Where", "")])
def test_a_topic_that_nobody_knows_is_refused(talker: LiveGraph, topic: str, told: str) -> None:
    with pytest.raises(RunError) as refused:
        talker.publish(topic)
    assert refused.value.code == "GBE619"
    assert told in refused.value.sentence


def test_the_stages_fit_together_and_an_unknown_name_is_an_attribute_error() -> None:
    runtime.PIPELINE.check(RuntimeConfig, runtime.RunHooks)
    with pytest.raises(AttributeError, match="no_such"):
        runtime.no_such  # noqa: B018


def test_the_module_tells_its_options_and_has_its_stages_as_a_graph(capsys: pytest.CaptureFixture[str]) -> None:
    assert runtime.main(["--help"]) == 0
    assert "--entrypoint" in capsys.readouterr().out
    assert next(iter(runtime.RUNTIME_PIPELINE)) == "LOAD_RUNTIME_CONFIG"
    with pytest.raises(AttributeError, match="NO_SUCH_PIPELINE"):
        runtime.NO_SUCH_PIPELINE  # noqa: B018


@pytest.mark.parametrize(
    ("ledger", "network"),
    [("", ("a.example",)), ("sqlite", ("a.example",)), ("nats://b.example:4222/shop", ("a.example", "b.example"))],
)
def test_a_confined_graph_may_reach_the_host_of_its_ledger(hello: Path, ledger: str, network: tuple[str, ...]) -> None:
    from msgspec.structs import replace

    from graphbus_core.settings import resolve_run

    config = resolve_run(RuntimeConfig(artifacts=str(hello / ".graphbus")))
    config = replace(
        config, settings=replace(config.settings, ledger=ledger), powers=replace(config.powers, network=("a.example",))
    )
    assert runtime._allow_ledger(config).powers.network == network
