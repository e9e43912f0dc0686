"""Names that others check later and less kindly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.deploy.names import as_label, check_image, check_label
from graphbus_core.errors import DeployError

DIGEST = "@sha256:" + "0" * 64


@pytest.mark.parametrize("label", ["a", "shop", "shop-2", "0x", "a" * 63])
def test_labels(label: str) -> None:
    assert check_label(label, "namespace") == label


@pytest.mark.parametrize("text", ["", "Shop", "-a", "a-", "a.b", "a_b", "a b", "ü", "a\n", "a" * 64])
def test_what_is_no_label_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(DeployError, match="is no namespace") as refusal:
        check_label(text, "namespace")
    assert refusal.value.code == "GBE703"
    assert refusal.value.status == 8


@pytest.mark.parametrize(
    "image",
    [
        "shop",
        "shop:1.2",
        "acme/shop",
        "ghcr.io/acme/shop:1.2",
        "localhost:5000/shop",
        f"ghcr.io/a/b{DIGEST}",
        f"a:1{DIGEST}",
        "a__b/c-d.e",
    ],
)
def test_images(image: str) -> None:
    assert check_image(image) == image


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Shop",
        "shop:",
        "shop:a b",
        "/shop",
        "shop/",
        "a//b",
        "shop@sha256:12",
        "shop;rm",
        "-x",
        "a" * 600,
        "shop\n",
        "http://a/b",
    ],
)
def test_what_is_no_image_is_refused(text: str) -> None:
    with pytest.raises(DeployError) as refusal:
        check_image(text)
    assert refusal.value.code == "GBE703"


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("OrderProcessor", "order-processor"),
        ("HTTPServer", "http-server"),
        ("my_shop", "my-shop"),
        ("Ümlaut", "mlaut"),
        ("--", ""),
        ("A1b", "a1b"),
    ],
)
def test_a_label_is_made_of_any_text(text: str, label: str) -> None:
    assert as_label(text) == label


@given(st.text())
def test_what_is_made_is_a_label_or_nothing(text: str) -> None:
    made = as_label(text)
    assert not made or check_label(made, "name") == made
