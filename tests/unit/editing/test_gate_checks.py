"""G7: further commands must find nothing new."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from graphbus_core.editing.gate import Gate
from graphbus_core.model.config import GateConfig
from graphbus_core.model.proposals import RungResult
from tests.unit.editing.shop_project import Shop

pytestmark = pytest.mark.slow

FINDER = """
import sys
from pathlib import Path
found = 0
for path in sorted(Path("agents").glob("*.py")):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if sys.argv[1] in line:
            found += 1
            print(f"{path.resolve()}:{number}:5: X101 do not write {sys.argv[1]} here")
            print(f"   {number} | {line}")
print(f"Found {found} errors.")
sys.exit(found > 0)
"""


def check(folder: Path, command: tuple[str, ...], old: str, new: str, **gate: object) -> RungResult:
    settings = GateConfig(checks=((), command), timeout_s=2.0, **gate)  # type: ignore[arg-type]
    shop = Shop(folder, more={"find.py": FINDER}, gate=settings)
    return next(rung for rung in shop.replace(old, new).rungs if rung.rung == "G7")


@pytest.mark.parametrize(
    ("word", "old", "new", "status"),
    [
        ("2.5", "2.5 * count", "count * 2.5", "passed"),
        (
            "2.5",
            '    """Takes orders."""',
            '    """Takes orders.\n\n    Of all kinds.\n    """\n    KIND = "any"',
            "passed",
        ),
        ("wild", "total = 2.5 * count", "total = count * 2.5  # wild", "failed"),
        ("total", "total = 2.5 * count", "total = 2.5 * count  # new\n        total += 0.0", "failed"),
    ],
    ids=["as before", "only moved", "a first one", "one more of the same"],
)
def test_only_what_is_new_counts(tmp_path: Path, word: str, old: str, new: str, status: str) -> None:
    rung = check(tmp_path, (sys.executable, "find.py", word), old, new)

    assert rung.status == status, rung.message
    if status == "failed":
        assert rung.code == "G7.checks"
        assert rung.path == "agents/orders.py"
        assert 20 <= rung.line < 30


def test_a_command_that_cannot_be_run_is_no_proof_unless_that_is_allowed(tmp_path: Path) -> None:
    says = "Even without the change, no-such-program is not installed where changed code runs."
    for allowed, status in ((False, "failed"), (True, "not_run")):
        rung = check(tmp_path / status, ("no-such-program",), "2.5 * count", "count * 2.5", allow_unverified=allowed)
        assert (rung.status, rung.code, rung.message) == (status, "G7.unverified", says)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("grep -q '2.5 . count' agents/orders.py", "agents/orders.py fails."),
        ("grep -q '2.5 . count' agents/orders.py || sleep 60", "takes longer than timeout_s"),
    ],
)
def test_a_command_that_fails_or_hangs_with_the_change_refuses(tmp_path: Path, script: str, says: str) -> None:
    rung = check(tmp_path, ("sh", "-c", script), "2.5 * count", "3.5 * count")

    assert rung.code == "G7.checks"
    assert says in rung.message


def test_without_checks_there_is_nothing_to_run(tmp_path: Path) -> None:
    rung = Shop(tmp_path).replace("2.5 * count", "count * 2.5").rungs[7]

    assert (rung.status, rung.message) == ("not_run", "No `checks` are set in [tool.graphbus.gate].")


def test_where_nothing_can_run_nothing_is_verified(tmp_path: Path) -> None:
    shop = Shop(tmp_path, gate=GateConfig(checks=(("true",),), allow_unverified=True))
    shop.gate = Gate(shop.project, shop.config, None)

    report = shop.replace("2.5 * count", "3.5 * count")

    assert [(rung.rung, rung.status, rung.code) for rung in report.rungs[5:]] == [
        ("G5", "not_run", "G5.unverified"),
        ("G6", "not_run", ""),
        ("G7", "not_run", "G7.unverified"),
        ("G8", "not_run", "G8.unverified"),
    ]
