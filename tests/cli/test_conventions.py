"""What every command has in common: its help, its document, its colour, its exit status, and where a wrong word belongs."""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from shutil import rmtree

import click
import pytest

from graphbus_core import build_graph, errors
from graphbus_core.cli import COMMANDS, graphbus, main
from tests.project_files import write_project

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")


def tree(command: click.Command, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield names, command
    for name, each in getattr(command, "commands", {}).items():
        yield from tree(each, *names, name)


ALL = [each for name, entry in COMMANDS.items() for each in tree(resolve_name(entry.target), name)]
LEAVES = [
    (names, command) for names, command in ALL if not isinstance(command, click.Group) or command.invoke_without_command
]
IDS = [" ".join(names) for names, _ in ALL]
LEAF_IDS = [" ".join(names) for names, _ in LEAVES]


# --- help -----------------------------------------------------------------------------------


def help_of(*names: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*names, "--help"]) == 0
    streams = capsys.readouterr()
    assert streams.err == ""
    return streams.out


@pytest.mark.parametrize(("names", "command"), ALL, ids=IDS)
def test_every_help_fits_a_terminal_and_explains_every_option(
    names: tuple[str, ...], command: click.Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = help_of(*names, capsys=capsys)
    assert [line for line in shown.splitlines() if len(line) > 80] == []
    assert "Examples:" in shown
    assert "\x1b" not in shown
    assert "\b" not in shown
    assert [each.name for each in command.params if isinstance(each, click.Option) and not each.help] == []
    assert main([*names, "-h"]) == 0
    assert capsys.readouterr().out == shown
    assert main(["help", *names]) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(("names", "command"), LEAVES, ids=LEAF_IDS)
def test_every_command_says_with_which_status_it_ends(names: tuple[str, ...], command: click.Command) -> None:
    assert "Exit status: " in (command.help or ""), names


def examples_of(command: click.Command) -> list[str]:
    lines = (command.help or "").partition("Examples:")[2].strip().splitlines()
    return [line.strip() for line in lines if line.strip()]


EXAMPLES = [(names, line) for names, command in ALL for line in examples_of(command)]


@pytest.mark.parametrize(("names", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_every_example_is_understood_by_the_real_parser(
    names: tuple[str, ...], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = next(part for part in parts_of(line) if part[:1] == ["graphbus"])
    reached = parse(words[1:])
    assert reached[: len(names)] == names


def parts_of(line: str) -> list[list[str]]:
    """The commands of a line of shell, without where their output goes."""
    found: list[list[str]] = [[]]
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|>&;")
    lexer.whitespace_split = True
    for word in lexer:
        if word[0] in "|&;":
            found.append([])
        else:
            found[-1].append(word)
    cut = [[*part, ">"][: [*part, ">"].index(">")] for part in found]
    return [[word for word in part if not re.fullmatch(r"[A-Z_]+=.*", word)] for part in cut]


def parse(words: list[str]) -> tuple[str, ...]:
    """Let click understand the words, and give the names of the command that they reach; nothing is run."""
    here = os.getcwd()
    while True:
        try:
            with graphbus.make_context("graphbus", list(words)) as context:
                return tuple(reach(context))
        except click.BadParameter as error:
            missing = re.search(r"'([^']+)' does not exist", error.message)
            if not missing:
                raise
            is_folder = isinstance(error.param, click.Parameter) and not getattr(error.param.type, "file_okay", True)
            path = Path(missing[1])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir() if is_folder else path.touch()
        finally:
            os.chdir(here)


def reach(context: click.Context) -> Iterator[str]:
    group = context.command
    rest = [*context._protected_args, *context.args]
    if isinstance(group, click.Group) and rest:
        name, command, rest = group.resolve_command(context, rest)
        assert name
        assert command
        yield name
        with command.make_context(name, rest, parent=context) as below:
            yield from reach(below)


def test_an_example_that_is_wrong_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(click.NoSuchOption):
        parse(["check", "--fromat", "json"])
    assert parts_of("A=1 graphbus check > x | jq .") == [["graphbus", "check"], ["jq", "."]]


def test_the_pages_of_the_help_are_found_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    shown = help_of(capsys=capsys)
    for name, entry in COMMANDS.items():
        assert f"  {name} " in shown
        assert entry.summary in shown


# --- one document ---------------------------------------------------------------------------

WITHOUT_JSON = {
    # `dev` writes a document on each line, because it has no end
    "completion": "it prints a script",
    "docker run": "stdout belongs to the container",
    "k8s deploy": "stdout belongs to kubectl",
}
WORDS = {
    "folder": "new", "name": "Thing", "number": "1", "place": "agents/nowhere.py", "agent": "Nobody", "key": "none",
    "old": "nowhere", "new": "nowhere", "forge": "github", "shell": "bash", "file": "nowhere.json",
}  # fmt: skip


def with_arguments(names: tuple[str, ...], command: click.Command) -> list[str]:
    """The shortest line that is complete."""
    required = [each for each in command.params if isinstance(each, click.Argument) and each.required]
    options = [each for each in command.params if isinstance(each, click.Option) and each.required]
    words = [
        str(each.type.choices[0]) if isinstance(each.type, click.Choice) else WORDS[each.name or ""]
        for each in required
    ]
    given = [part for each in options for part in (each.opts[-1], str(getattr(each.type, "choices", ["x"])[0]))]
    return [*names, *words, *given]


def documents_of(line: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, object]:
    """The status and the one document of a command."""
    status = main(line)
    streams = capsys.readouterr()
    assert "This is a bug of GraphBus" not in streams.err, streams.err
    assert "\x1b" not in streams.out + streams.err
    return status, json.loads(streams.out)


def test_the_commands_without_a_document_are_few_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    found = {" ".join(names) for names, command in LEAVES if not any("--json" in each.opts for each in command.params)}
    assert found == {*WITHOUT_JSON}
    for name in found:
        assert f"`graphbus {name}`" in PAGE, WITHOUT_JSON[name]


@pytest.mark.parametrize(
    ("names", "command"), [each for each in LEAVES if " ".join(each[0]) not in {*WITHOUT_JSON, "dev"}], ids=str
)
def test_where_there_is_nothing_a_command_writes_one_document_too(
    names: tuple[str, ...],
    command: click.Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with open(os.devnull, encoding="utf-8") as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        status, document = documents_of([*with_arguments(names, command), "--json"], capsys)
    assert isinstance(document, dict | list)
    if status not in {0, 3}:
        assert isinstance(document, dict)
        assert document.get("errors") or document.get("problems"), document


FILES = {
    "pyproject.toml": "[project]\nname = 'shop'\nversion = '1.0.0'\n[tool.graphbus.runtime]\nkeep_dead_letters = true\n",
    "requirements.txt": "",
    "agents/__init__.py": "",
    "agents/orders.py": """
        from graphbus_core import GraphBusNode, schema_method, subscribe


        class Orders(GraphBusNode):
            @schema_method(input_schema={"order_id": str}, output_schema={"ok": bool})
            def place(self, order_id: str) -> dict[str, object]:
                self.publish("/Order/Placed", {"order_id": order_id})
                return {"ok": True}

            @subscribe("/Order/Placed")
            def on_placed(self, event: dict[str, object]) -> None:
                if event["order_idd"]:
                    self.state["last"] = "one"
        """,
}
REPORTING = [
    ["check", "agents"],
    ["check", "agents", "--statistics"],
    ["check", "agents", "--diff"],
    ["build", "agents"],
    ["inspect"],
    ["inspect", "--agent", "Orders"],
    ["validate"],
    ["run", "--call", "Orders.place", '{"order_id": "1"}', "--trace", "--profile"],
    ["dlq", "ls"],
    ["dlq", "show", "1"],
    ["trace"],
    ["trace", "last"],
    ["profile"],
    ["doctor"],
    ["contract", "agents"],
    ["contract", "export", "--format", "asyncapi"],
    ["state", "ls"],
    ["k8s", "generate", "--namespace", "shop", "--diff"],
    ["docker", "build", "--diff"],
    ["ci", "github", "--diff"],
    ["-C", "demo", "negotiate", "agents", "--rounds", "2"],
    ["-C", "demo", "negotiate", "agents", "--plan"],
    ["-C", "demo", "inspect-negotiation"],
    ["-C", "demo", "inspect-negotiation", "--sessions"],
    ["-C", "demo", "inspect-negotiation", "--transcript"],
    ["-C", "demo", "inspect-negotiation", "P001"],
    ["-C", "demo", "report"],
    ["-C", "demo", "replay"],
    ["-C", "demo", "why", "agents/notification.py"],
    ["-C", "demo", "undo", "--dry-run"],
]
"""In this order: each finds what those before it have left."""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A small project that is built, with one below it for agents to negotiate in."""
    root = write_project(tmp_path / "shop", FILES)
    build_graph(root / "agents")
    return root


@pytest.fixture
def with_demo(shop: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["-C", str(shop), "init", "demo"]) == 0
    rmtree(shop / "demo" / "tests")  # a negotiation without a suite takes a third of the time
    capsys.readouterr()
    return shop


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_what_a_command_reports_is_one_document(
    with_demo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(with_demo)
    for line in REPORTING:
        status, document = documents_of([*line, "--json"], capsys)
        assert document is not None, line
        assert status in {0, 3, 5, 7}, (line, document)


def test_a_form_of_json_gets_its_refusal_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["--format", "json"], ["--format=json"], ["--json"]):
        status, document = documents_of(["check", "nowhere", *words], capsys)
        assert isinstance(document, dict)
        assert (status, document["errors"][0]["code"]) == (2, "GBE101")
    assert main(["check", "nowhere", "--", "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_a_report_as_json_goes_to_stdout_and_nowhere_else(capsys: pytest.CaptureFixture[str]) -> None:
    for other in (["--format", "html"], ["-o", "x.html"]):
        status, document = documents_of(["report", "--json", *other], capsys)
        assert isinstance(document, dict)
        assert (status, document["errors"][0]["code"]) == (2, "GBE132")


# --- wrong words ----------------------------------------------------------------------------

MISSPELT = [
    ("biuld", "There is no command 'biuld'. Did you mean 'build'?", "graphbus"),
    ("dlq shw", "graphbus dlq has no command 'shw'. Did you mean 'show'?", "graphbus dlq"),
    ("k8s genrate", "graphbus k8s has no command 'genrate'. Did you mean 'generate'?", "graphbus k8s"),
    ("help chekc", "There is no command 'chekc'. Did you mean 'check'?", "graphbus"),
    ("--vresion", "There is no option --vresion. Did you mean '--version'?", "graphbus"),
    ("check --fromat", "graphbus check has no option --fromat. Did you mean '--format'?", "graphbus check"),
    ("dlq ls --tpoic x", "graphbus dlq ls has no option --tpoic. Did you mean '--topic'?", "graphbus dlq ls"),
    (
        "check --format jsno",
        "Invalid value for '--format': 'jsno' is not one of 'text', 'json', 'sarif', 'github'. Did you mean 'json'?",
        "graphbus check",
    ),
    (
        "check --version",
        "graphbus check has no option --version: it is an option of graphbus itself and stands before the command.",
        "graphbus check",
    ),
    (
        "--json check",
        "There is no option --json: it is an option of graphbus check and stands after the command.",
        "graphbus",
    ),
    (
        "dlq --json ls",
        "graphbus dlq has no option --json: it is an option of graphbus dlq ls and stands after the command.",
        "graphbus dlq",
    ),
    ("inspect --agent", "Option '--agent' requires an argument.", "graphbus inspect"),
    ("run --port abc", "--port must be a whole number, not 'abc'.", "graphbus run"),
    ("dlq show abc", "ID must be a whole number, not 'abc'.", "graphbus dlq show"),
    ("build --max-usd x", "--max-usd must be a number, not 'x'.", "graphbus build"),
]


@pytest.mark.parametrize(("line", "sentence", "command"), MISSPELT, ids=[line for line, *_ in MISSPELT])
def test_a_wrong_word_gets_the_right_one(
    line: str, sentence: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    told = capsys.readouterr().err.splitlines()
    assert told == [f"error: {sentence} [GBE110]", f"  hint: `{command} --help` shows what it takes."]


def test_a_name_of_the_project_gets_the_right_one(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(shop)
    for line, right in (
        (["run", "--call", "Order.place", "{}"], "Orders"),
        (["run", "--call", "Orders.palce", "{}"], "place"),
        (["inspect", "--agent", "Order"], "Orders"),
        (["check", "--select", "GB0001"], "GB001"),
    ):
        assert main(line) != 0
        assert f"Did you mean {right!r}?" in capsys.readouterr().err, line


# --- exit status ----------------------------------------------------------------------------

FAILING = [
    (2, ["check", "nowhere"]),
    (2, ["nothing"]),
    (2, []),
    (3, ["check", "agents"]),
    (3, ["build", "broken"]),
    (4, ["undo"]),
    (5, ["report"]),
    (6, ["inspect", "nowhere"]),
    (7, ["run", "--call", "Orders.nothing", "{}"]),
    (8, ["ci", "github"]),
]


def run(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "graphbus_core", *words],
        cwd=cwd, env=os.environ | environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("status", "line"), FAILING, ids=str)
def test_a_process_ends_with_the_status_of_its_family(status: int, line: list[str], shop: Path) -> None:
    write_project(shop, {"broken/a.py": "def (:\n", ".github/workflows/graphbus.yml": "mine: 1\n"})
    done = run(*line, cwd=shop)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr


def test_the_page_and_the_help_have_the_status_of_every_family(capsys: pytest.CaptureFixture[str]) -> None:
    shown = help_of(capsys=capsys)
    rows = dict(re.findall(r"^\| (\d+) \|.*\| (GBE\dxx)? ?\|$", PAGE, re.MULTILINE))
    families = [kind for kind in errors.GraphBusError.__subclasses__() if kind is not errors.SeveralErrors]
    for number, family in enumerate(families, 1):
        assert rows[str(family.exit_status)] == f"GBE{number}xx"
        assert re.search(rf" {family.exit_status}  +\S", shown)
    assert {"0", "1", "130", "141", "143"} <= {*rows}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "words", "status"),
    [
        (signal.SIGTERM, ["run"], 0),
        (signal.SIGINT, ["run"], 0),
        (signal.SIGTERM, ["run", "--call", "Orders.wait", "{}"], 143),
        (signal.SIGINT, ["run", "--call", "Orders.wait", "{}"], 130),
        (signal.SIGINT, ["dev", "agents"], 0),
    ],
)
def test_a_signal_ends_a_command_with_its_number(
    number: signal.Signals, words: list[str], status: int, tmp_path: Path
) -> None:
    waiting = """
        import time

        from graphbus_core import GraphBusNode, schema_method


        class Orders(GraphBusNode):
            @schema_method(input_schema={}, output_schema={})
            def wait(self) -> dict[str, object]:
                print("at work", flush=True)
                time.sleep(30)
                return {}
        """
    settings = "[tool.graphbus.runtime]\ngrace_s = 0.1\n"
    root = write_project(tmp_path, {"agents/a.py": waiting, "pyproject.toml": settings})
    build_graph(root / "agents")
    process = subprocess.Popen(
        [sys.executable, "-m", "graphbus_core", *words],
        cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout
    awaited = "at work" if "--call" in words else "Ready"
    while awaited not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == status


# --- colour ---------------------------------------------------------------------------------

COLOURED = [
    ["--help"],
    ["check", "nowhere"],
    *(line for line in REPORTING if "replay" not in line),
    ["-C", "demo", "undo"],
    ["dlq", "drop", "1"],
    ["run", "-i"],
]
DRIVER = """
import sys
from graphbus_core.cli import main
for line in {lines!r}:
    print(f"@@@@ {{line}}", flush=True)
    main(line)
"""
_SEQUENCE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


def at_terminal(lines: list[list[str]], folder: Path, **environment: str) -> dict[str, bytes]:
    """What a terminal gets to see of each command; a question is answered with the end of input."""
    mine, theirs = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR", "TERM"}}
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER.format(lines=lines)],
        cwd=folder, env={"TERM": "xterm-256color", **kept, **environment},
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    shown, end = b"", time.monotonic() + 200
    while time.monotonic() < end:
        if select.select([mine], [], [], 0.2)[0]:
            try:
                heard = os.read(mine, 65536)
            except OSError:
                break
            shown += heard
        elif process.poll() is None:
            os.write(mine, b"\x04")
        else:
            break
    process.kill()
    process.wait()
    os.close(mine)
    parts = shown.split(b"@@@@ ")[1:]
    return {part.splitlines()[0].decode(): part for part in parts}


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_without_colour_no_terminal_gets_an_escape_sequence(environment: dict[str, str], with_demo: Path) -> None:
    seen = at_terminal(COLOURED, with_demo, **environment)
    assert [*seen] == [str(line) for line in COLOURED]
    for line, shown in seen.items():
        assert b"This is a bug of GraphBus" not in shown, shown.decode()
        assert _SEQUENCE.findall(shown) == [], (environment, line)


@pytest.mark.slow
def test_a_terminal_gets_colour_and_a_pipe_only_when_it_is_asked_for(shop: Path) -> None:
    lines = [["check", "agents"], ["inspect"], ["nothing"]]
    assert all(_SEQUENCE.search(shown) for shown in at_terminal(lines, shop).values())
    for words in lines:
        plain = run(*words, cwd=shop, TERM="xterm-256color")
        assert "\x1b" not in plain.stdout + plain.stderr
        forced = run(*words, cwd=shop, FORCE_COLOR="1")
        assert "\x1b[" in forced.stdout + forced.stderr
        both = run(*words, cwd=shop, FORCE_COLOR="1", NO_COLOR="x")
        assert "\x1b" not in both.stdout + both.stderr


# --- environment ----------------------------------------------------------------------------

SOURCES = ROOT / "src" / "graphbus_core"
NOT_OF_PEOPLE = {"GRAPHBUS_VERDICT", "PYTEST_PLUGINS"}
"""Between a process and its child in the jail."""


def variables_of(source: str) -> Iterator[str]:
    """The names of the variables that a module reads, as far as they stand in it."""
    module = ast.parse(source)
    known = {
        target.id: node.value.value
        for node in ast.walk(module)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Attribute(value=holder, attr="get" | "pop"), args=[name, *_]) if is_environ(holder):
                pass
            case ast.Call(func=ast.Attribute(attr="getenv"), args=[name, *_]):
                pass
            case ast.Subscript(value=holder, slice=name) if is_environ(holder):
                pass
            case ast.Compare(left=name, comparators=[holder]) if is_environ(holder):
                pass
            case _:
                continue
        value = name.value if isinstance(name, ast.Constant) else known.get(getattr(name, "id", ""))
        if isinstance(value, str):
            yield value


def is_environ(node: ast.expr) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) in {"environ", "_environ"}


def test_every_variable_that_is_read_is_in_the_list() -> None:
    read = {name for path in SOURCES.rglob("*.py") for name in variables_of(path.read_text(encoding="utf-8"))}
    table = PAGE.partition("## Environment variables")[2]
    listed = {*re.findall(r"`([A-Z_]+)`", table.partition("\n\nChanged")[0])}
    assert {"GRAPHBUS_CONFIG", "NO_COLOR", "_GRAPHBUS_COMPLETE"} <= read
    assert read - listed - NOT_OF_PEOPLE == set()
    not_by_name = {"GRAPHBUS_TOKEN", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "COLUMNS", "HOME"}
    assert listed - read == not_by_name


def test_what_is_documented_about_the_file_of_the_place_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphbus_core.settings import load

    (block,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "graphbus.toml").write_text(block, encoding="utf-8")
    monkeypatch.setenv("GRAPHBUS_CONFIG", str(tmp_path / "graphbus.toml"))
    found = load(tmp_path).runtime
    assert (found.state_dir, found.grace_s, found.serve.allowed_hosts) == (
        "/var/lib/graphbus",
        25,
        ("shop.example.org",),
    )
