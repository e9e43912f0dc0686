from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphbus_core.cli.report.page as report
from graphbus_core.cli.console import sanitize
from graphbus_core.cli.report.template import Value, fill_template

FOLDER = Path(report.__file__).parent


def filled(tmp_path: Path, source: str, **values: Value) -> str:
    (tmp_path / "x.html").write_text(source, encoding="utf-8")
    return fill_template(tmp_path / "x.html", values)


@pytest.mark.parametrize(
    ("source", "values", "text"),
    [
        ("<p>{{a}}</p>", {"a": "1 < 2 & 3"}, "<p>1 &lt; 2 &amp; 3</p>"),
        ('<p title="{{a}}">', {"a": '"it\'s"'}, '<p title="&quot;it&#x27;s&quot;">'),
        ("{{a}}{{b}}{{c}}", {"a": 7, "b": None, "c": 2.5}, "72.5"),
        ("{{a}}", {"a": "{{b}}"}, "{{b}}"),
        ("{{a}}", {"a": "\x1b[31m \u202e"}, "␛[31m &lt;U+202E&gt;"),
        ("{{#a}}{{.}},{{/a}}", {"a": ["<", 2]}, "&lt;,2,"),
        ("{{#a}}{{b}}{{c}} {{/a}}", {"a": [{"b": 1}, {"b": 2, "c": 3}], "c": 9}, "19 23 "),
        ("{{#a}}{{b}}{{/a}}", {"a": {"b": 1}}, "1"),
        ("{{#a}}x{{/a}}", {"a": None}, ""),
        ("{{?a}}{{#a}}{{.}}{{/a}}!{{/a}}{{^a}}none{{/a}}", {"a": [1, 2]}, "12!"),
        ("{{?a}}yes{{/a}}{{^a}}no{{/a}}", {"a": ""}, "no"),
        ("<p>\n    a <b>b</b>\n    c\n</p>{{! words }}", {}, "<p>a <b>b</b>c</p>"),
    ],
)
def test_a_template_is_filled(tmp_path: Path, source: str, values: dict[str, Value], text: str) -> None:
    assert filled(tmp_path, source, **values) == text


@pytest.mark.parametrize("source", ["{{#a}}x", "{{#a}}{{^b}}x{{/a}}{{/b}}", "x{{/a}}"])
def test_a_section_that_does_not_end_is_refused(tmp_path: Path, source: str) -> None:
    with pytest.raises(ValueError, match="ends with"):
        filled(tmp_path, source, a=1, b=1)


class Source(HTMLParser):
    """The page as it is written, without the marks of its sections."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.addresses: set[str] = set()
        self.raw = ""
        source = (FOLDER / "page.html").read_text(encoding="utf-8")
        self.feed(re.sub(r"\{\{[#?^/]\w+\}\}|\{\{!.*?\}\}", "", source))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {tag, *(name for name, _ in attrs)}
        self.addresses |= {str(value) for name, value in attrs if name in ("href", "src", "action")}

    def handle_data(self, data: str) -> None:
        if self.lasttag in ("style", "script"):
            self.raw += data.strip()


def test_values_of_the_page_stand_where_escaped_text_is_only_text() -> None:
    """In texts and quoted attributes: in no script, style or name, and in no address but that of a place in the page."""
    source = Source()
    assert source.raw == "{{>../../view/static/face.css}}{{>style.css}}{{>behaviour.js}}"
    assert all(address.startswith("#") for address in source.addresses)
    assert not [name for name in source.names if "{" in name or re.match(r"on|style=", name)]


@pytest.mark.parametrize("name", ["../../view/static/face.css", "style.css", "behaviour.js"])
def test_style_and_script_do_not_end_their_element(name: str) -> None:
    text = (FOLDER / name).read_text(encoding="ascii").lower()
    assert not any(end in text for end in ("</style", "</script", "<!--"))


@given(st.text(max_size=40))
def test_a_value_is_text_whatever_it_is(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    made = filled(tmp_path_factory.getbasetemp(), '<p title="{{text}}">{{text}}</p>', text=text)
    found: list[object] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: found.append((tag, attrs))  # type: ignore[method-assign]
    parser.handle_data = found.append  # type: ignore[method-assign]
    parser.feed(made)
    parser.close()
    assert found[0] == ("p", [("title", sanitize(text))])
    assert "".join(map(str, found[1:])) == sanitize(text)
