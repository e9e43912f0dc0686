"""Code in a jail sees what it sees when the graph runs: the project in its place, a home, no sign of a trial."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from graphbus_core.editing.gate import Gate
from graphbus_core.editing.rungs.trial_environment import TreeState
from graphbus_core.editing.sandboxes import TIERS, why_unavailable
from graphbus_core.editing.sandboxes.jails import Jail, Tier
from graphbus_core.editing.sandboxes.process import Limits
from tests.unit.editing.shop_project import Shop

pytestmark = pytest.mark.slow

LOOK = """
import os, socket, sys, traceback
seen = {
    "file": __file__, "cwd": os.getcwd(), "home": os.path.expanduser("~"), "argv": sys.argv, "orig": sys.orig_argv,
    "main": sys.modules["__main__"].__file__, "temp": __import__("tempfile").gettempdir(),
    "path": [path for path in sys.path if "trial" in path],
    "modules": [name for name in sys.modules if name.startswith("graphbus_") and not name.startswith("graphbus_core")],
    "environment": [name for name in os.environ if "GRAPHBUS" in name or "SANDBOX" in name or "PYTEST" in name],
    "flags": sys.flags.hash_randomization,
    "user": os.getuid(),
}
raise ValueError(repr(seen))
"""


@pytest.fixture(params=TIERS)
def tier(request: pytest.FixtureRequest) -> Tier:
    found: Tier = request.param
    if why_unavailable(found) and not os.environ.get("CI"):
        pytest.skip(f"no {found} here: {why_unavailable(found)}")
    return found


def test_an_import_finds_the_project_in_its_place(tier: Tier, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    gate = Gate(shop.project, shop.config, Jail(tier, shop.root))
    head = TreeState("look", {"agents/orders.py": f"{LOOK}".encode()})

    verdict = gate.trials.check_import(TreeState("start", {}), head, shop.project)

    assert verdict is not None
    seen = eval(verdict.output.removeprefix("ValueError: "))
    assert (seen["file"], seen["cwd"]) == (str(shop.root / "agents/orders.py"), str(shop.root))
    assert [seen["path"], seen["modules"], seen["environment"], seen["flags"]] == [[], [], [], 1]
    assert seen["home"] in (str(Path.home()), "/tmp/home")
    assert seen["temp"] == "/tmp"
    assert [*seen["argv"], seen["main"], *seen["orig"]].count(seen["main"]) == 3
    assert "sandbox_programs" not in str(seen)
    assert os.geteuid() in (0, seen["user"])
    assert (verdict.path, verdict.line) == ("agents/orders.py", LOOK.count("\n"))


def test_a_project_with_its_environment_inside_is_seen_whole_and_only_the_copy_is_written(
    tier: Tier, tmp_path: Path
) -> None:
    project, copy = tmp_path / "project", tmp_path / "copy"
    for folder in (project, copy):
        folder.mkdir()
        (folder / "a.txt").write_text(folder.name)
    code = "import os; print(os.getcwd(), open('a.txt').read(), os.listdir()); open('b.txt', 'w').write('x')"

    done = Jail(tier, project).run(
        [sys.executable, "-c", code], copy, limits=Limits(timeout_s=60), readable=[Path(sys.prefix)]
    )

    assert done.stdout == f"{project} copy ['a.txt']\n", done
    assert (copy / "b.txt").exists()
    assert not (project / "b.txt").exists()


@pytest.mark.parametrize("place", ["/tmp"])
def test_a_project_in_the_place_of_something_else_is_seen_where_its_copy_is(
    tier: Tier, tmp_path: Path, place: str
) -> None:
    done = Jail(tier, Path(place)).run(
        [sys.executable, "-c", "import os; print(os.getcwd())"], tmp_path, limits=Limits(timeout_s=60)
    )

    assert done.stdout == f"{tmp_path}\n", done
