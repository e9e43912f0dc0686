"""The pages that are made from the code describe all of it and are up to date."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

import msgspec
import pytest

from graphbus_core.model.config import Settings
from scripts import reference


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kind, _ in [*reference.TABLES, *reference.NAMED]])
def test_every_key_of_a_table_has_a_meaning_and_every_meaning_a_key(name: str, kind: type[msgspec.Struct]) -> None:
    assert set(reference.attributes(kind)) == {field.name for field in reference.scalar_fields(kind)}


def test_every_table_below_the_settings_has_its_section() -> None:
    assert {name for name, _, _ in reference.TABLES} == {"tool.graphbus", *tables_below(Settings, "tool.graphbus")}


def tables_below(kind: type[msgspec.Struct], name: str) -> Iterator[str]:
    for field in msgspec.structs.fields(kind):
        if isinstance(field.default, msgspec.Struct):
            yield f"{name}.{field.name}"
            yield from tables_below(type(field.default), f"{name}.{field.name}")


def test_a_table_of_named_tables_stands_below_its_own_with_the_keys_that_are_required() -> None:
    page = reference.configuration_page()
    headers = [line for line in page.splitlines() if line.startswith("## ")]
    assert headers[headers.index("## `[tool.graphbus.llm]`") + 1] == "## `[tool.graphbus.llm.providers.NAME]`"
    assert "| `base_url` | string | required |" in page


def test_the_defaults_that_the_reference_offers_for_copying_change_nothing() -> None:
    copied = tomllib.loads(reference.defaults_as_toml())["tool"]["graphbus"]
    assert msgspec.convert(copied, Settings) == Settings()


@pytest.mark.slow
def test_the_generated_pages_say_what_the_code_says() -> None:
    assert reference.outdated() == []


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{path} does not exist.", "*path* does not exist."),
        ("No {name}.{suggestion}", "No *name*."),
        ("`{command} --help` shows it.", "`COMMAND --help` shows it."),
        ("At most {limit_bytes} bytes.", "At most *limit bytes* bytes."),
        ("{name!r} is <odd>.", "*name* is &lt;odd>."),
    ],
)
def test_a_sentence_of_the_register_is_shown_with_its_fields_named(template: str, text: str) -> None:
    assert reference.for_readers(template) == text
