"""What a graph needs beside its agents: the project's other files and the packages of other people."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphbus_core import store
from graphbus_core.build import run_build_pipeline
from graphbus_core.compiler.reading.imports import imported_names
from graphbus_core.compiler.reading.syntax import ModuleSource
from graphbus_core.model.artifacts import Manifest
from graphbus_core.model.config import BuildConfig
from graphbus_core.model.digests import sha256_hex

AGENT = "from graphbus_core import GraphBusNode\n{imports}\n\nclass Cart(GraphBusNode):\n{body}"


def _write(root: Path, files: dict[str, str]) -> None:
    for path, text in {"pyproject.toml": "", **files}.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def _build(root: Path, *paths: str) -> Manifest:
    run_build_pipeline(BuildConfig(paths=tuple(str(root / path) for path in paths or (".",))))
    return store.load_manifest(root / ".graphbus")


def _cart(imports: str, body: str = "    pass\n") -> str:
    return AGENT.format(imports=imports, body=body)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import a", ["a"]),
        ("import a.b as c, d", ["a.b", "d"]),
        ("from a import b as c, d", ["a.b", "a.d"]),
        ("from a.b import *", ["a.b"]),
        ("from . import x", ["shop.agents.x"]),
        ("from .x import y", ["shop.agents.x.y"]),
        ("from .. import x", ["shop.x"]),
        ("from ..x.y import z", ["shop.x.y.z"]),
        ("def f():\n    import a\n    class C:\n        from b import c", ["a", "b.c"]),
        (
            "try:\n    import a\nexcept ImportError:\n    import b\nelse:\n    import c\nfinally:\n    import d",
            ["?a", *"bcd"],
        ),
        ("with x:\n    import a\nfor y in x:\n    import b\nelse:\n    import c\nwhile x: import d", ["?a", *"bcd"]),
        ("match x:\n    case 1:\n        import a\n    case _:\n        import b", ["a", "b"]),
        ("async def f():\n    async with x:\n        import a\n    async for y in x:\n        import b", ["?a", "b"]),
        ("if x:\n    import a\nelif y:\n    import b\nelse:\n    import c", ["a", "b", "c"]),
        ("if TYPE_CHECKING:\n    import a\nelse:\n    import b", ["b"]),
        ("if typing.TYPE_CHECKING:\n    import a", []),
        ("if not TYPE_CHECKING:\n    import a\nelse:\n    import b", ["a"]),
        ("if not x:\n    import a\nelse:\n    import b", ["a", "b"]),
        ("'import a'\n# import b\nx = '''\nimport c\n'''", []),
        ("importlib.import_module('a')", ["a"]),
        (
            "from importlib import import_module\nimport_module('.a', __package__)",
            ["importlib.import_module", "shop.agents.a"],
        ),
        ("import_module('..a', package=__package__)", ["shop.a"]),
        ("import_module('.a', 'other')", ["other.a"]),
        ("__import__('a')", ["a"]),
        ("import_module(NAME)", ["*"]),
        ("import_module(f'a.{name}')", ["*"]),
        ("import_module('.a', there())", ["*"]),
        ("load = importlib.import_module", ["*"]),
        ("from importlib import import_module as load", ["*", "importlib.import_module"]),
        ("pkgutil.iter_modules(there)", ["*"]),
        ("runpy.run_module('a')", ["*"]),
        ("# coding: utf-7\n+AGkAbQBwAG8AcgB0- a", ["a"]),
        ("import important\ndef f():\n    # import\n    import a; import b", ["a", "b", "important"]),
    ],
)
def test_the_imports_of_a_module_are_read_from_its_statements(text: str, names: list[str]) -> None:
    source = ModuleSource("shop/agents/cart.py", "shop.agents.cart", text.encode())
    assert imported_names(source, source.parse()) == tuple(names)


def test_an_import_in_a_package_counts_from_the_package_itself() -> None:
    source = ModuleSource("shop/__init__.py", "shop", b"from .x import y")
    assert imported_names(source, source.parse()) == ("shop.x.y",)


def test_third_party_are_neither_ours_nor_pythons_nor_graphbus(tmp_path: Path) -> None:
    imports = "import json, os.path, requests.auth\nfrom yaml.nodes import Node\nimport agents.prices, numpy as np"
    _write(tmp_path, {"agents/cart.py": _cart(imports), "agents/prices.py": ""})
    assert _build(tmp_path, "agents").third_party == ("numpy", "requests", "yaml")


def test_files_that_agents_import_are_followed_and_the_agents_are_not_listed_twice(tmp_path: Path) -> None:
    files = {
        "shop/__init__.py": "from shop import version",
        "shop/version.py": "",
        "shop/agents/__init__.py": "",
        "shop/agents/cart.py": _cart("from shop.models import Item\nfrom . import stock"),
        "shop/agents/stock.py": _cart("import shop.agents.cart").replace("Cart", "Stock"),
        "shop/models/__init__.py": "from .item import Item",
        "shop/models/item.py": "import attrs",
        "shop/unused.py": "import django",
    }
    _write(tmp_path, files)
    manifest = _build(tmp_path, "shop/agents")
    expected = ["shop/__init__.py", "shop/agents/__init__.py", "shop/models/__init__.py", "shop/models/item.py"]
    assert list(manifest.imports) == [*expected, "shop/version.py"]
    assert manifest.imports == {path: sha256_hex(files[path].encode()) for path in manifest.imports}
    assert list(manifest.sources) == ["shop/agents/cart.py", "shop/agents/stock.py"]
    assert manifest.third_party == ("attrs",)


def test_the_same_whether_the_imported_files_are_built_or_not(tmp_path: Path) -> None:
    for name in ("one", "two"):
        _write(
            tmp_path / name,
            {"a/cart.py": _cart("from b.c import d"), "b/c.py": "import b.e", "b/e.py": "import f"},
        )
    one, two = _build(tmp_path / "one", "a"), _build(tmp_path / "two")
    assert (one.imports, one.third_party) == (two.imports, two.third_party)
    assert (list(one.imports), one.third_party) == (["b/c.py", "b/e.py"], ("f",))


def test_imports_below_src_are_found(tmp_path: Path) -> None:
    _write(tmp_path, {"src/shop/cart.py": _cart("from shop.prices import price"), "src/shop/prices.py": ""})
    assert list(_build(tmp_path).imports) == ["src/shop/prices.py"]


def test_middleware_is_needed_too(tmp_path: Path) -> None:
    settings = '[tool.graphbus.runtime]\nmiddleware = ["around.timing:measure"]\n'
    _write(tmp_path, {"cart.py": _cart(""), "around/timing.py": "import statsd", "pyproject.toml": settings})
    manifest = _build(tmp_path, "cart.py")
    assert (list(manifest.imports), manifest.third_party) == (["around/timing.py"], ("statsd",))


def test_a_folder_of_ours_with_modules_is_never_asked_of_strangers(tmp_path: Path) -> None:
    """Somebody else may have published a package of that name."""
    _write(tmp_path, {"cart.py": _cart("from shop import missing\nimport redis"), "shop/prices.py": ""})
    _write(tmp_path, {"redis/redis.conf": ""})
    assert _build(tmp_path, "cart.py").third_party == ("redis",)


def test_a_file_that_is_no_python_is_listed_with_its_digest_and_not_looked_into(tmp_path: Path) -> None:
    settings = "[tool.graphbus]\nmax_source_bytes = 200\n"
    files = {"a/cart.py": _cart("import broken, large"), "broken.py": "def", "large.py": "import zzz\n" + "#" * 300}
    _write(tmp_path, {**files, "pyproject.toml": settings})
    manifest = _build(tmp_path, "a")
    assert manifest.imports == {path: sha256_hex(files[path].encode()) for path in ("broken.py", "large.py")}
    assert manifest.third_party == ()


def test_a_build_notices_that_an_imported_file_has_changed(tmp_path: Path) -> None:
    _write(tmp_path, {"a/cart.py": _cart("import b"), "b.py": "import c"})
    first = _build(tmp_path, "a")
    assert _build(tmp_path, "a") == first
    (tmp_path / "b.py").write_text("import d, e", encoding="utf-8")
    second = _build(tmp_path, "a")
    assert (first.third_party, second.third_party) == (("c",), ("d", "e"))
    assert second.imports == {"b.py": sha256_hex(b"import d, e")}


def test_imported_files_that_have_changed_are_problems_of_the_artifacts_and_leave_the_sources_as_they_are(
    tmp_path: Path,
) -> None:
    _write(tmp_path, {"a/cart.py": _cart("import b"), "b.py": ""})
    manifest = _build(tmp_path, "a")
    (tmp_path / "b.py").write_text("x = 1", encoding="utf-8")
    folder = tmp_path / ".graphbus"
    assert [(each.code, str(each.where)) for each in store.find_problems(folder)] == [("GBE508", "b.py")]
    assert [str(each.where) for each in store.find_drift(folder, manifest)] == ["b.py"]
    assert store.find_changed_sources(folder, manifest) == ()
