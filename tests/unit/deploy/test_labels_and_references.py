"""Names that a cluster or a registry would refuse later."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphbus_core.deploy.names import check_image, check_label, make_label, split_image
from graphbus_core.errors import DeployError

DIGEST = "sha256:" + "0" * 64
IMAGES = {
    "shop": ("shop", "", ""),
    "shop:1.2": ("shop", "1.2", ""),
    "a__b/c-d.e": ("a__b/c-d.e", "", ""),
    "localhost:5000/shop": ("localhost:5000/shop", "", ""),
    "localhost:5000/a/shop:1": ("localhost:5000/a/shop", "1", ""),
    f"ghcr.io/acme/shop@{DIGEST}": ("ghcr.io/acme/shop", "", DIGEST),
    f"ghcr.io/acme/shop:1@{DIGEST}": ("ghcr.io/acme/shop", "1", DIGEST),
}
NO_IMAGES = ["", "Shop", "shop:", "shop:a b", "/shop", "shop/", "a//b", "shop@sha256:12", "shop;rm", "-x", "a" * 600,
             "shop\n", "http://a/b"]  # fmt: skip
NAMES = {"OrderProcessor": "order-processor", "HTTPServer": "http-server", "my_shop": "my-shop", "Ümlaut": "mlaut",
         "--": "", "A1b": "a1b"}  # fmt: skip


@pytest.mark.parametrize("text", ["", "Shop", "-a", "a-", "a.b", "a_b", "a b", "ü", "a\n", "a" * 64])
def test_what_is_no_label_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(DeployError, match="is not a valid namespace") as refusal:
        check_label(text, "namespace")
    assert (refusal.value.code, refusal.value.status) == ("GBE703", 8)


@pytest.mark.parametrize("image", IMAGES)
def test_images_and_their_parts(image: str) -> None:
    assert check_image(image) == image
    assert split_image(image) == IMAGES[image]


@pytest.mark.parametrize("text", NO_IMAGES)
def test_what_is_no_image_is_refused(text: str) -> None:
    with pytest.raises(DeployError, match="GBE703"):
        check_image(text)


@pytest.mark.parametrize("text", NAMES)
def test_a_label_is_made_of_any_text(text: str) -> None:
    assert make_label(text) == NAMES[text]


@given(st.text())
def test_what_is_made_is_a_label_or_nothing(text: str) -> None:
    made = make_label(text)
    assert not made or check_label(made, "name") == made
