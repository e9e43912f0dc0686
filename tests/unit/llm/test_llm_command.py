"""A program as a model: what it is given, what it may use, and how it fails."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from graphbus_core.errors import ModelError
from graphbus_core.llm import command
from graphbus_core.llm.client import FollowUp, ModelPrompt
from graphbus_core.llm.command import CommandClient, prompt_as_text
from graphbus_core.llm.providers import advice_on_form, command_to_test
from tests.fakes.pausing import comes_true
from tests.patience import PATIENCE_S

PROMPT = ModelPrompt(shared="protocol", own="source", task="task")
KEY = "sk-top-secret-1234567890"


def program(
    code: str,
    *,
    timeout_s: float = PATIENCE_S,
    environ: Mapping[str, str] | None = None,
    pass_env: tuple[str, ...] = (),
) -> CommandClient:
    argv = [sys.executable, "-I", "-c", code]
    return CommandClient(argv, timeout_s, os.environ if environ is None else environ, pass_env)


def refused(client: CommandClient) -> ModelError:
    with pytest.raises(ModelError) as caught:
        client.complete(PROMPT, 10)
    return caught.value


def test_the_program_reads_the_prompt_and_its_output_is_the_answer() -> None:
    heard: list[int] = []
    client = program("import sys; print(sys.stdin.read().upper() + 'é', end='')")
    completion = client.complete(PROMPT, 10, heard.append)
    assert completion.text == "PROTOCOL\n\nSOURCE\n\nTASK\né"
    assert (completion.usage.input_tokens, completion.usage.output_tokens) == (6, 7)
    assert (completion.cost_usd, completion.stop, client.price) == (0.0, "end", (0.0, 0.0))
    assert heard[-1] == 25


def test_what_followed_the_task_is_marked_by_who_said_it() -> None:
    prompt = ModelPrompt(shared="", task="task", turns=(FollowUp("assistant", "mine"), FollowUp("user", "yours")))
    assert prompt_as_text(prompt) == "task\n\nYour answer was:\n\nmine\n\nThe reply to it:\n\nyours\n"


def test_the_program_gets_path_home_locale_and_what_is_named_and_nothing_else() -> None:
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nowhere",
        "LANG": "C.UTF-8",
        "TERM": "xterm",
        "ANTHROPIC_API_KEY": KEY,
        "OPENAI_API_KEY": KEY,
        "TOOL_KEY": "wanted",
    }
    client = program("import os; print(sorted(os.environ))", environ=environ, pass_env=("TOOL_KEY", "NOT_SET"))
    seen = set(eval(client.complete(PROMPT, 10).text))
    assert seen - {"LC_CTYPE"} == {"PATH", "HOME", "LANG", "TOOL_KEY", "GRAPHBUS_PROGRAM"}


def test_a_program_that_fails_is_reported_with_its_last_words_without_keys() -> None:
    code = f"import sys; print('first', file=sys.stderr); print('key {KEY} and hunter2hunter2', file=sys.stderr); sys.exit(3)"
    client = program(code, environ={"TOOL_KEY": "hunter2hunter2"}, pass_env=("TOOL_KEY",))
    error = refused(client)
    assert (error.code, error.is_transient, error.data["status"]) == ("GBE453", False, 3)
    assert error.data["reason"] == "key *** and ***"


def test_a_program_that_fails_in_silence_says_nothing() -> None:
    assert refused(program("raise SystemExit(1)")).data["reason"] == "it printed nothing"
    assert refused(program("print('no credit'); raise SystemExit(1)")).data["reason"] == "no credit"


@pytest.mark.parametrize("name", ["/no/such/program", "no-such-program-anywhere", "/etc"])
def test_a_program_that_is_not_there_is_final(name: str) -> None:
    error = refused(CommandClient([name], 5, os.environ))
    assert (error.code, error.is_final) == ("GBE452", True)


def test_a_program_that_takes_too_long_is_killed_with_all_that_it_has_started(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(mark)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(60)\n"
    )
    error = refused(program(code, timeout_s=1.0))
    assert (error.code, error.is_transient, error.may_be_billed) == ("GBE447", True, True)
    assert _is_gone(int(mark.read_text()))


def _is_gone(pid: int) -> bool:
    def has_ended() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    return comes_true(has_ended)


def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "MAX_ANSWER_BYTES", 200_000)
    error = refused(program("import sys\nwhile True: sys.stdout.write('x' * 10000)"))
    assert (error.code, error.is_transient, error.may_be_billed) == ("GBE450", False, True)


def test_the_model_is_named_by_the_command_without_folders_and_keys() -> None:
    client = CommandClient(["/usr/bin/claude", "-p", "--api-key", KEY], 5, {})
    assert client.model == "command:claude -p --api-key ***"
    assert repr(client) == "CommandClient('command:claude -p --api-key ***')"


def test_closing_kills_what_runs_and_lets_nothing_start() -> None:
    client = program("import time; print('up', flush=True); time.sleep(60)")
    begun = threading.Event()
    failures: list[ModelError] = []

    def ask() -> None:
        try:
            client.complete(PROMPT, 10, lambda _count: begun.set())
        except ModelError as error:
            failures.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert begun.wait(PATIENCE_S)
    client.close()
    thread.join(PATIENCE_S)
    assert [error.code for error in failures] == ["GBE453"]
    assert refused(client).code == "GBE448"


def test_an_answer_holds_no_key_and_nothing_that_steers_a_terminal() -> None:
    code = "import os; print('\\x1b[1;32m## nothing\\x1b[0m\\x1b]0;title\\x07', os.environ['TOOL_KEY'])"
    client = program(code, environ={"TOOL_KEY": "hunter2hunter2"}, pass_env=("TOOL_KEY",))
    assert client.complete(PROMPT, 10).text == "## nothing ***\n"


RUNAWAY = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {code!r}], start_new_session=True)
open({mark!r}, "w").write(str(child.pid))
print("## nothing", flush=True)
"""


def test_an_answer_does_not_wait_for_who_left_the_session_and_holds_the_output(tmp_path: Path) -> None:
    code, mark = "import time\nwhile True: print('more', flush=True); time.sleep(0.05)", tmp_path / "pid"
    try:
        answer = program(RUNAWAY.format(code=code, mark=str(mark)), timeout_s=PATIENCE_S).complete(PROMPT, 10)
        assert answer.text.startswith("## nothing\n")
    finally:
        os.kill(int(mark.read_text()), signal.SIGKILL)


def test_who_left_the_session_does_not_outlive_a_timeout(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    code = RUNAWAY.format(code="import time; time.sleep(60)", mark=str(mark)) + "time.sleep(60)"
    assert refused(program(code, timeout_s=1.0)).code == "GBE447"
    assert _is_gone(int(mark.read_text()))


def test_an_answer_is_whole_when_a_script_opens_its_output_anew() -> None:
    script = "echo one; echo two > /dev/stdout; echo three"
    answer = CommandClient(["sh", "-c", script], PATIENCE_S, dict(os.environ)).complete(
        ModelPrompt(shared="", task="hi"), 10
    )
    assert answer.text == "one\ntwo\nthree\n"


def test_advice_for_a_program_fits_a_program() -> None:
    more = {"advice": advice_on_form("command:x"), "test": command_to_test("command:x")}
    error = ModelError("GBE463", model="command:x", count=3, reason="r", **more)

    assert "larger model" not in error.hint
    assert "Let the program print only the answer" in error.hint
    assert "`graphbus doctor --test command:PROGRAM`" in error.hint
    assert command_to_test("ollama:qwen3") == "graphbus doctor --test ollama:qwen3"
