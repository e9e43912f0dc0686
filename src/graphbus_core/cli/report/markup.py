"""HTML that cannot be forgotten to be escaped: text is `str`, markup is `Markup`, and only `element` makes markup from text.

element("p", "1 < 2")                       <p>1 &lt; 2</p>
element("p", element("b", name), ": ok")    <p><b>...</b>: ok</p>
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from graphbus_core.cli.console import plain

_VOID = frozenset({"meta", "br", "col", "hr"})
_RAW_ENDS = ("</style", "</script", "<!--")


class Markup:
    """A finished piece of a page. `str` of it is its source."""

    __slots__ = ("_source",)

    def __init__(self, source: str) -> None:
        self._source = source

    def __str__(self) -> str:
        return self._source


Child = str | int | Markup | None | Iterable["Child"]
Attribute = str | int | float | bool | None

NOTHING = Markup("")


def element(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """Give an element; every child and every value of an attribute is escaped unless it is markup already.

    Args:
        name: Of the element.
        children: Texts, numbers, markup, None for nothing, or iterables of these.
        attributes: `class_` for `class`, `aria_label` for `aria-label`; None and False leave one out, True gives it without a
            value. A link may only lead to a place in the page.
    """
    inside = "".join(_source(child) for child in children)
    opening = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Markup(opening if name in _VOID else f"{opening}{inside}</{name}>")


def together(*children: Child) -> Markup:
    """Give several pieces one after the other."""
    return Markup("".join(_source(child) for child in children))


def raw_element(name: str, text: str) -> Markup:
    """Give a `style` or `script` element with a text of our own.

    Raises:
        ValueError: The text would end the element.
    """
    if any(end in text.lower() for end in _RAW_ENDS):
        raise ValueError(f"the text of <{name}> would end it")
    return Markup(f"<{name}>{text}</{name}>")


def _source(child: Child) -> str:
    if isinstance(child, str):
        return escape(plain(child))
    if isinstance(child, Markup):
        return str(child)
    if child is None:
        return ""
    return str(child) if isinstance(child, int) else "".join(_source(each) for each in child)


def _attribute(key: str, value: Attribute) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    text = str(value)
    if name == "href" and not text.startswith("#"):
        raise ValueError(f"a link of the page leads out of it: {text}")
    return f' {name}="{escape(plain(text))}"'
