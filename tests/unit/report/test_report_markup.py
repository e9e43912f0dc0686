from __future__ import annotations

import pytest

from graphbus_core.cli.report.markup import Markup, element, raw_element, together


@pytest.mark.parametrize(
    ("made", "source"),
    [
        (element("p", "1 < 2 & 3"), "<p>1 &lt; 2 &amp; 3</p>"),
        (element("p", element("b", "<i>"), " ", 7), "<p><b>&lt;i&gt;</b> 7</p>"),
        (element("p", None, ["a", ["b"], (each for each in "cd")]), "<p>abcd</p>"),
        (element("p", class_='"><script>'), '<p class="&quot;&gt;&lt;script&gt;"></p>'),
        (element("a", "x", href="#P001", aria_label="it's"), '<a href="#P001" aria-label="it&#x27;s">x</a>'),
        (element("b", hidden=True, title=None, open=False), "<b hidden></b>"),
        (element("meta", charset="utf-8"), '<meta charset="utf-8">'),
        (element("rect", x=0, rx=2.5), '<rect x="0" rx="2.5"></rect>'),
        (together("<", Markup("<br>"), None), "&lt;<br>"),
        (element("p", "\x1b[31m \u202e"), "<p>␛[31m &lt;U+202E&gt;</p>"),
    ],
)
def test_text_is_escaped_and_markup_is_not(made: Markup, source: str) -> None:
    assert str(made) == source


@pytest.mark.parametrize("address", ["https://example.org", "javascript:alert(1)", "//example.org", ""])
def test_a_link_cannot_lead_out_of_the_page(address: str) -> None:
    with pytest.raises(ValueError, match="leads out"):
        element("a", "x", href=address)


@pytest.mark.parametrize("text", ["</style>", "a </STYLE >", "x </script", "<!-- x"])
def test_a_style_or_script_that_would_end_its_element_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="would end it"):
        raw_element("style", text)
