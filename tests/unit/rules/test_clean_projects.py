"""Correct code gives no finding at all, not even a note; a slip in it is found where it can be known."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core import settings
from graphbus_core.compiler import rules
from graphbus_core.compiler.project import Project
from graphbus_core.model.config import BuildConfig

ROOT = Path(__file__).parents[3]
PROJECTS = sorted((ROOT / "tests" / "projects").glob("clean_*"))


@pytest.mark.parametrize("folder", PROJECTS, ids=lambda folder: folder.name)
def test_a_correct_project_has_no_finding(folder: Path) -> None:
    project = Project.read(settings.resolve_build(BuildConfig(paths=(str(folder),))), cache=False)
    assert len(project.definitions) >= 3
    assert project.errors == ()
    found = rules.check(project, select=sorted(set(rules.REGISTER) - {"GB210"}))
    assert [f"{each.span.place} {each.code} {each.message}" for each in found] == []


def test_there_are_several_correct_projects() -> None:
    assert len(PROJECTS) >= 4


@pytest.mark.parametrize(
    ("path", "old", "new", "codes"),
    [
        ("clean_shop/agents/orders.py", 'event["order_id"], event', 'event["orderid"], event', set()),
        ("clean_shop/agents/orders.py", '"status": "confirmed", "total"', '"status": "confirmed", "totl"', {"GB103"}),
        ("clean_shop/agents/mailing.py", 'confirmed["total"]', 'confirmed["totl"]', {"GB003"}),
        ("clean_shop/agents/inventory.py", "def on_rejected(self, order_id", "def on_rejected(self, orderid", {"GB110"}),
        ("clean_shop/agents/inventory.py", '"in_stock": self', '"instock": self', {"GB110"}),
        ("clean_shop/agents/orders.py", '"status": "failed", "total"', '"status": "failed", "totl"', {"GB103"}),
        ("clean_shop/agents/orders.py", 'qty=item["qty"])', 'quantity=item["qty"])', {"GB110"}),
        ("clean_shop/agents/orders.py", '@depends_on("Inventory")\n', "", {"GB010"}),
        ("clean_shop/agents/orders.py", "@subscribe(Topics.PLACED)", '@subscribe("/Inventory/Chnged")', {"GB001"}),
        ("clean_sensors/agents/sensors.py", "await asyncio.sleep(0)", "import time; time.sleep(0)", {"GB310"}),
        ("clean_sensors/agents/sensors.py", '{"kind": self.KIND, "number"', '{"kind": self.KIND, "nubmer"', set()),
        ("clean_sensors/agents/sensors.py", 'event["value"]\n', 'event["vaule"]\n', {"GB003"}),
        ("clean_sensors/agents/sensors.py", '"level": "low", "value"', '"level": "low", "vaule"', {"GB004"}),
        ("clean_sensors/agents/sensors.py", "logger.exception(\"attempt %d\", attempt)\n", "pass\n", {"GB303"}),
        ("clean_newsroom/agents/newsroom.py", "            raise\n", "", {"GB302"}),
        ("clean_newsroom/agents/newsroom.py", "event.event_id", "event.id", {"GB310"}),
        ("clean_chat/agents/rooms.py", "lines=[]):\n", "lines=[]):\n        lines.append(1)\n", {"GB301"}),
        ("clean_chat/agents/rooms.py", "def answer(self, event)", "def answer(self, *event)", {"GB310"}),
    ],
    ids=lambda value: value if isinstance(value, str) and "\n" not in value else "",
)  # fmt: skip
def test_a_slip_in_a_correct_project_is_found_where_it_can_be_known(
    tmp_path: Path, path: str, old: str, new: str, codes: set[str]
) -> None:
    folder = ROOT / "tests" / "projects" / path.partition("/")[0]
    project = Project.read(settings.resolve_build(BuildConfig(paths=(str(folder),))), cache=False)
    relative = path.partition("/")[2]
    at = next(file.path for file in project.index.files if file.path.endswith(relative))
    text = project.source(at).text
    assert text.count(old) == 1
    after = project.with_files({at: text.replace(old, new).encode()})
    assert {each.code for each in rules.check(after)} == codes
