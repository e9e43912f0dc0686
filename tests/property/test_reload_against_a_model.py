"""A project under random edits against a small model: who runs which version, and who has handled which event with it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from graphbus_core.errors import GraphBusError
from tests.fakes.living_project import LivingProject

NAMES = ("Ada", "Bob", "Cyd")
AGENT = """
    from graphbus_core import GraphBusNode, subscribe
    from shop.shared import SHARED

    VERSION = {version}

    class {name}(GraphBusNode):
        def __init__(self):
            self.seen = []

        def on_start(self):
            {on_start}

        def version(self):
            return (VERSION, SHARED)

        @subscribe("/Tick/Tock")
        def on_tick(self, number: int):
            assert self.version() == (VERSION, SHARED)
            self.seen.append((number, *self.version()))
    """
SHARED = "SHARED = {version}\n"
SPOILS = ("1 +", "1 / 0", "missing")


class Project(RuleBasedStateMachine):
    """`files` is what was saved, `running` what the graph should run."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        root = Path(self.folder.name).resolve()
        (root / "pyproject.toml").write_text('[tool.graphbus]\nexternal_topics = ["/Tick/Tock"]\n')
        (root / "shop").mkdir()
        (root / "shop/shared.py").write_text(SHARED.format(version=0))
        self.files: dict[str, object] = {"Ada": 0, "shared": 0}
        self.write(root, "Ada", 0)
        self.living = LivingProject(root)
        self.running = dict(self.files)
        self.spoiled: set[str] = set()
        self.seen: dict[str, list[tuple[object, ...]]] = {"Ada": []}
        self.saves = self.ticks = 0

    def write(self, root: Path, name: str, version: object, on_start: str = "pass") -> None:
        text = AGENT.format(name=name, version=version, on_start=on_start)
        lines = [line[4:] for line in text.splitlines()]
        (root / f"shop/{name.lower()}.py").write_text("\n".join(lines).lstrip() + "\n")

    def teardown(self) -> None:
        self.living.graph.stop()
        self.folder.cleanup()

    @rule(name=st.sampled_from(NAMES))
    def save_an_agent(self, name: str) -> None:
        self.saves += 1
        self.write(self.living.root, name, self.saves)
        self.files[name] = self.saves
        self.spoiled.discard(name)

    @rule(name=st.sampled_from(NAMES), spoil=st.sampled_from(SPOILS))
    def spoil_an_agent(self, name: str, spoil: str) -> None:
        self.write(self.living.root, name, spoil)
        self.files.setdefault(name, None)
        self.spoiled.add(name)

    @precondition(lambda self: not self.spoiled)
    @rule(name=st.sampled_from(NAMES))
    def reload_with_an_on_start_that_fails(self, name: str) -> None:
        self.saves += 1
        self.write(self.living.root, name, self.saves, "1 / 0")
        self.files.setdefault(name, None)
        self.spoiled.add(name)
        self.reload()

    @rule()
    def save_what_all_share(self) -> None:
        self.saves += 1
        (self.living.root / "shop/shared.py").write_text(SHARED.format(version=self.saves))
        self.files["shared"] = self.saves
        self.spoiled.discard("shared")

    @rule(spoil=st.sampled_from(SPOILS))
    def spoil_what_all_share(self, spoil: str) -> None:
        (self.living.root / "shop/shared.py").write_text(SHARED.format(version=spoil))
        self.spoiled.add("shared")

    @precondition(lambda self: len(self.files) > 2)
    @rule(data=st.data())
    def delete_an_agent(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(set(self.files) - {"shared"})))
        (self.living.root / f"shop/{name.lower()}.py").unlink()
        del self.files[name]
        self.spoiled.discard(name)

    @rule()
    def reload(self) -> None:
        if self.spoiled:
            with pytest.raises(GraphBusError):
                self.living.reload()
            self.tick()
            return
        self.living.reload()
        self.seen = {
            name: self.seen.get(name, []) if name in self.running else [] for name in self.files if name != "shared"
        }
        self.running = dict(self.files)
        self.tick()

    @rule()
    def tick(self) -> None:
        self.ticks += 1
        self.living.graph.publish("/Tick/Tock", {"number": self.ticks})
        for name, seen in self.seen.items():
            seen.append((self.ticks, self.running[name], self.running["shared"]))

    @invariant()
    def every_agent_has_seen_what_the_model_says(self) -> None:
        nodes = self.living.graph.nodes
        assert {name: node.seen for name, node in nodes.items()} == self.seen  # type: ignore[attr-defined]
        assert not self.living.graph.bus.dead_letters()


TestProject = pytest.mark.slow(Project.TestCase)
TestProject.settings = settings(max_examples=25, stateful_step_count=20)
