"""`graphbus generate agent`: text that reads well, fits the project, passes its own test and overwrites nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from graphbus_core.cli import main
from tests.patience import PATIENCE_S
from tests.project_files import write_project

PYPROJECT = """
    [project]
    name = "shop"
    requires-python = ">=3.11"
    [tool.graphbus]
    [tool.pytest.ini_options]
    pythonpath = [".", "src"]
    addopts = ["--import-mode=importlib"]
    """
ORDERS = """
    from graphbus_core import Event, GraphBusNode, subscribe

    class OrderProcessor(GraphBusNode):
        def place(self, order_id: str, total: float, items: list[str]) -> None:
            self.publish("/Order/Created", {"order_id": order_id, "total": total, "items": items})

        @subscribe("/Parcel/Sent")
        def on_parcel_sent(self, event: Event) -> None:
            self.log(event["tracking_number"])
    """


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_project(tmp_path, {"pyproject.toml": PYPROJECT, "agents/__init__.py": "", "agents/orders.py": ORDERS})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def generate(*arguments: str) -> int:
    return main(["generate", "agent", *arguments])


def files(folder: Path) -> dict[str, bytes]:
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if ".graphbus" not in name}


def test_the_agent_hears_says_and_needs_what_was_asked_for(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wish = ["--subscribes", "/Order/Created", "--publishes", "/Parcel/Sent", "--depends-on", "OrderProcessor"]
    assert generate("ShippingService", *wish) == 0
    source = (shop / "agents/shipping_service.py").read_text()
    assert '@depends_on("OrderProcessor")\nclass ShippingService(GraphBusNode):' in source
    assert '@subscribe("/Order/Created")\n    def on_order_created(self, event: Event) -> None:' in source
    assert 'self.publish("/Parcel/Sent", {"text": text})' in source
    assert capsys.readouterr().out.splitlines() == [
        "✓ Wrote agents/shipping_service.py",
        "✓ Wrote tests/test_shipping_service.py",
    ]


def test_a_known_topic_is_published_with_the_fields_that_are_sent_there(shop: Path) -> None:
    assert generate("HTTPImport", "--publishes", "/Order/Created", "--publishes", "/Parcel/Lost") == 0
    source = (shop / "agents/http_import.py").read_text()
    assert 'self.publish("/Parcel/Lost", {"text": text})' in source
    assert 'input_schema={"order_id": str, "total": float, "items": list}' in source
    assert '{"order_id": order_id, "total": total, "items": items}' in source


WISHES = [
    ("agents", []),
    ("agents", ["--depends-on", "OrderProcessor", "--subscribes", "/Order/*", "--publishes", "/Order/Created"]),
    ("src/billing/agents", ["--subscribes", "/Order/Created", "--publishes", "/Parcel/Lost"]),
]


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "wish"), WISHES)
def test_the_test_of_a_new_agent_passes_and_its_text_is_clean(folder: str, wish: list[str], shop: Path) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    assert generate("NewService", "--path", folder, *wish) == 0
    pytest_command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "tests"]
    done = subprocess.run(pytest_command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=shop)
    assert done.returncode == 0, done.stdout
    new = [f"{folder}/new_service.py", "tests/test_new_service.py"]
    for ruff in (["check", "--isolated", "--select", "E,F,I,UP,B,RUF"], ["format", "--isolated", "--check"]):
        command = [sys.executable, "-m", "ruff", *ruff, "--line-length", "120", *new]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=shop)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["shipping-service"], "GBE114", "not a class name"),
        (["Event"], "GBE114", "reserved"),
        (["TestService"], "GBE114", "treated as a test"),
        (["Import"], "GBE114", "import.py, could not be imported"),
        (["OrderProcessor"], "GBE114", "agents/orders.py:3"),
        (["NewService", "--subscribes", "Order"], "GBE115", "'Order'"),
        (["NewService", "--publishes", "/Order/*"], "GBE115", "'/Order/*'"),
        (["NewService", "--subscribes", "/A/B", "--subscribes", "/a/b"], "GBE116", "'a_b'"),
        (["NewService", "--depends-on", "OrderProcesor"], "GBE117", "Did you mean 'OrderProcessor'?"),
        (["NewService", "--path", "nowhere"], "GBE101", "nowhere"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    arguments: list[str], code: str, words: str, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(shop)
    assert generate(*arguments) == 2
    shown = capsys.readouterr().err
    assert f"[{code}]" in shown
    assert words in shown
    assert files(shop) == before


@pytest.mark.parametrize("taken", ["agents/new_service.py", "tests/test_new_service.py"])
def test_a_file_that_exists_is_never_overwritten(taken: str, shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_project(shop, {taken: "# mine\n"})
    before = files(shop)
    assert generate("NewService") == 2
    assert f"{taken}: error: This file already exists. [GBE118]" in capsys.readouterr().err
    assert files(shop) == before


def test_a_place_that_cannot_be_written_leaves_no_half_of_the_pair(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_project(shop, {"tests": "a file where a folder should be\n"})
    before = files(shop)
    assert generate("NewService") == 2
    assert "[GBE113]" in capsys.readouterr().err
    assert files(shop) == before


def placed(folder: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Generate an agent in a project of these files, without saying where."""
    write_project(folder, files)
    monkeypatch.chdir(folder)
    return generate("ShippingService")


def test_without_a_folder_agents_the_new_one_stands_beside_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"pyproject.toml": PYPROJECT, "src/shop/__init__.py": "", "src/shop/orders.py": ORDERS}
    assert placed(tmp_path, files, monkeypatch) == 0
    assert (tmp_path / "src/shop/shipping_service.py").is_file()
    assert "from shop.shipping_service import" in (tmp_path / "tests/test_shipping_service.py").read_text()
    monkeypatch.chdir(tmp_path / "tests")
    assert generate("BillingService") == 0
    assert (tmp_path / "src/shop/billing_service.py").is_file()


@pytest.mark.parametrize("files", [{}, {"pyproject.toml": PYPROJECT}], ids=["no project", "an empty project"])
def test_the_first_agent_makes_the_folder(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert placed(tmp_path, files, monkeypatch) == 0
    assert (tmp_path / "agents/shipping_service.py").is_file()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_agents_in_several_folders_ask_for_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"pyproject.toml": PYPROJECT, "a/orders.py": ORDERS, "b/mail.py": ORDERS.replace("OrderProcessor", "Mail")}
    assert placed(tmp_path, files, monkeypatch) == 2
    said = capsys.readouterr().err
    assert "any of them: a, b. [GBE162]" in said
    assert "--path a" in said


def test_json_lists_the_files(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate("NewService", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {"agent": "NewService", "files": ["agents/new_service.py", "tests/test_new_service.py"]}
