"""The names of models, and the words of programs, in files that are shared: without folders and users of a machine."""

from __future__ import annotations

import pytest

from graphbus_core.errors.machine_paths import remove_paths
from graphbus_core.llm.providers import ModelSpec, public_name

HOME = "/".join(["", "home", "ada"])


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (f"{HOME}/bin/claude -p", "claude -p"),
        (f"python3 {HOME}/models/ask.py 8080", "python3 ask.py 8080"),
        ("python3 tools/ask.py", "python3 tools/ask.py"),
        (f"ask --config={HOME}/ask.toml", "ask --config=ask.toml"),
        (f"ask --cwd {HOME}", "ask --cwd PATH"),
        (f"ask --cwd {HOME}.lovelace", "ask --cwd PATH"),
        (f"ask '{HOME} lovelace/my model.gguf'", "ask 'my model.gguf'"),
        (f"ask -I{HOME}/prompts ~/ask.toml", "ask -IPATH ask.toml"),
        (f"sh -c 'cat > ~ada/in; ask < {HOME}/in'", "sh -c 'cat > PATH; ask < PATH'"),
        ("ask http://127.0.0.1:8080/v1 a/b -x/y", "ask http://127.0.0.1:8080/v1 a/b -xPATH"),
        (f"docker run -v {HOME}:/data ask", "docker run -v PATH ask"),
    ],
)
def test_a_program_is_named_without_folders_of_the_machine(command: str, name: str) -> None:
    assert public_name(ModelSpec("command", command)) == f"command:{name}"


def test_other_models_keep_their_names() -> None:
    assert public_name(ModelSpec("openrouter", "qwen/qwen3-coder")) == "openrouter:qwen/qwen3-coder"


def test_words_of_a_program_lose_their_paths() -> None:
    words = f"python3: can't open file '{HOME}/ask.py': [Errno 2] (see {HOME} and https://example.org/help)"
    assert remove_paths(words) == "python3: can't open file 'ask.py': [Errno 2] (see PATH and https://example.org/help)"
