"""Digests are those of hashlib, whichever implementation makes them."""

from __future__ import annotations

import hashlib
import sys

import pytest

from graphbus_core.model import digests


@pytest.mark.parametrize("size", [0, 1, 55, 64, 1000, 200_000, 200_001, 1_000_000])
def test_a_digest_is_that_of_hashlib(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    assert digests.sha256_hex(data[:size]) == hashlib.sha256(data[:size]).hexdigest()


def test_without_a_built_in_implementation_openssl_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_sha2", "_sha256"):
        monkeypatch.setitem(sys.modules, name, None)
    assert digests._built_in() is hashlib.sha256


def test_small_things_are_not_left_to_openssl() -> None:
    assert digests._small is not hashlib.sha256
