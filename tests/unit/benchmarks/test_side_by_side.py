"""The comparison with other libraries: programs that take turns, tables that name what is missing."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # its modules find each other as they do when they are run

from peers import REQUIREMENTS  # noqa: E402
from run_all import misses, section  # noqa: E402
from side_by_side import MEASURES, OURS, PEERS, PROGRAMS, Program, alive, answering, page, running  # noqa: E402
from stopwatch import Row, overview  # noqa: E402


def program(name: str, folder: Path) -> Program:
    return Program(Path(sys.executable), PROGRAMS / name, folder, dict(os.environ))


def test_one_column_for_each_library_and_a_dash_where_it_has_no_figure() -> None:
    rows = [Row("publish", 1e-6, 2e-6, "pyee"), Row("publish", 1e-6, 3e-4, "bus"), Row("call", 5e-6, 1e-3, "bus")]
    assert overview(rows, "ours").splitlines() == [
        "| measure | ours | pyee | bus |",
        "|---|---|---|---|",
        "| publish | 1 µs | 2 µs | 300 µs |",
        "| call | 5 µs | – | 1 ms |",
    ]


def test_the_page_compares_all_and_judges_what_has_a_limit() -> None:
    rows = [Row("publish", 2e-6, 1e-6, "pyee", 1.0), Row("publish", 2e-6, 9e-6, "bus"), Row("check", 1e-7, 2e-7, "x")]
    text = page(rows)
    assert "A check of five fields adds 100 ns to a publish; x 200 ns." in text
    assert "| publish | 2 µs | pyee 1 µs | 2.00 | ≤ 1 × | **no** |" in text
    assert "| publish | 2 µs | bus" not in text


def test_what_is_over_its_limit_is_said_in_words_before_the_tables() -> None:
    tables = {"calls": [Row("call", 4e-6, 1e-6, "bare method", 2.0), Row("publish", 1e-6, 1e-6, "peer", 2.0)]}
    assert misses(tables) == ["call against bare method"]
    text = section(tables, 130.0)
    assert "took 2 minutes" in text
    assert "Over its limit: call against bare method.\n\n### Calls" in text
    assert "Every limit is kept." in section({"calls": tables["calls"][1:]}, 60.0)


def test_a_ratio_that_is_tiny_keeps_a_digit() -> None:
    assert "| 0.001 |" in section({"calls": [Row("publish", 1e-6, 1e-3, "peer")]}, 60.0)


@pytest.mark.parametrize("file", sorted({*REQUIREMENTS.values()}))
def test_a_peer_is_installed_by_hash_and_from_no_named_index(file: str) -> None:
    text = (BENCHMARKS.parent / "requirements" / file).read_text(encoding="utf-8")
    assert "://" not in text
    assert "--" not in text.replace("--hash=sha256:", "")
    pinned = re.findall(r"^[a-z0-9][^=\n]*==[^\n]*(?:\n {4}--hash=sha256:[0-9a-f]{64}[^\n]*)+", text, re.MULTILINE)
    assert len(pinned) == len(re.findall(r"^[a-z0-9]", text, re.MULTILINE))


def test_each_library_has_a_program_that_says_what_it_does() -> None:
    for name in PEERS.values():
        assert (PROGRAMS / name).read_text(encoding="utf-8").startswith('"""'), name


@pytest.mark.slow
@pytest.mark.parametrize("name", [PEERS["no library"], PEERS[OURS]])
def test_a_program_gives_nanoseconds_for_each_measure_it_knows(tmp_path: Path, name: str) -> None:
    with running(program(name, tmp_path)) as child:
        assert set(child.measures) <= set(MEASURES)
        for measure in ("publish, 1 handler", "async handler", "call"):
            assert 1e-9 < child.take_s(measure) < 1e-2


@pytest.mark.slow
def test_a_library_that_breaks_off_in_the_middle_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.py").write_text('print(\'{"measures": ["call"]}\', flush=True)', encoding="utf-8")
    broken = Program(Path(sys.executable), tmp_path / "broken.py", tmp_path, dict(os.environ))
    with running(broken) as one, running(program("direct.py", tmp_path)) as other:
        assert list(answering({"broken": one, "no library": other})) == ["no library"]
    assert "broken cannot be measured here" in capsys.readouterr().out


@pytest.mark.slow
def test_a_library_whose_first_event_does_not_arrive_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.py").write_text("raise SystemExit(3)", encoding="utf-8")
    broken = Program(Path(sys.executable), tmp_path / "broken.py", tmp_path, dict(os.environ))
    found = alive({"broken": broken, "no library": program("direct.py", tmp_path)})
    assert list(found) == ["no library"]
    assert "broken does not run here" in capsys.readouterr().out
