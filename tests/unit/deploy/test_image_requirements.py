"""What an image installs has a hash, and is what our own lock says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from graphbus_core.deploy.image import join_requirements, read_hashed
from graphbus_core.errors import DeployError
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]
PINS = ROOT / "src" / "graphbus_core" / "deploy" / "lock"
HASH = f"--hash=sha256:{'0' * 64}"
GOOD = f"""\
# made by a tool
--prefer-binary
--index-url https://example.org/simple
--only-binary=:all:
PyYAML==6.0.3 \\
    {HASH} \\
    {HASH}
    # via -r deps.in
requests[socks]==2.32.5 ; python_version < "4" {HASH}  # via nobody
"""


def test_a_file_with_hashes_is_read() -> None:
    assert [*read_hashed(GOOD, "requirements.txt")] == ["pyyaml", "requests"]
    assert [*read_hashed(f"\ufeffa @ https://example.org/a-1-py3-none-any.whl {HASH}\n", "requirements.txt")] == ["a"]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("requests==2.32.5\n", 1, "requests has no `--hash=sha256:`"),
        (f"a==1 {HASH}\nb==2 \\\n", 2, "b has no"),
        (f"a==1 {HASH}\n\n\nb>=2\n", 4, "b has no"),
        ("-r other.txt\n", 1, "would allow packages"),
        ("--constraint=c.txt\n", 1, "would allow packages"),
        ("-e .\n", 1, "would allow packages"),
        (f"./local.whl {HASH}\n", 1, "does not begin with the name of a package"),
        (f"https://example.org/a.whl {HASH}\n", 1, "does not begin with the name of a package"),
        (f"GraphBus==9.9 {HASH}\n", 1, "the runtime of GraphBus comes from its own wheel"),
        ("--req other.txt\n", 1, "--req would allow"),
        ("--no-binary :all:\n", 1, "--no-binary would allow"),
        ("--only-binary=:none:\n", 1, "--only-binary would allow"),
        ("--only-binary a\n", 1, "--only-binary would allow"),
        (f"a @ https://example.org/a-1.tar.gz {HASH}\n", 1, "an address that is not a wheel"),
        (f"a @ git+https://example.org/a.whl.git@7 {HASH}\n", 1, "an address that is not a wheel"),
    ],
)
def test_anything_else_is_refused_with_its_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(DeployError, match="GBE711") as refusal:
        read_hashed(text, "requirements.txt")
    assert reason in refusal.value.sentence
    assert refusal.value.where is not None
    assert refusal.value.where.line == line


def test_what_the_project_pins_itself_is_left_to_it_and_nothing_comes_twice() -> None:
    pins = f"msgspec==0.22 {HASH}\ntyping-extensions==1 {HASH}\n", f"Typing_Extensions==1 {HASH}\n"
    theirs = read_hashed(f"msgspec==0.23 {HASH}\n", "requirements.txt")
    text = join_requirements(pins, "r.whl", "f" * 64, theirs)
    assert [line for line in text.splitlines() if not line.startswith((" ", "#"))] == [
        "./docker/r.whl \\",
        "typing-extensions==1 \\",
    ]
    assert [*read_hashed(text.partition("f" * 64)[2], "x")] == ["typing-extensions"]


def test_the_pins_are_those_of_the_lock() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "image_pins.py"), "--check"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert finished.returncode == 0, finished.stderr
