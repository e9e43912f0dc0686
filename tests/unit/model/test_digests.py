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


def test_a_build_of_many_files_is_left_to_openssl_once_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    monkeypatch.setattr(digests, "_small", lambda data: used.append("built in") or hashlib.sha256(data))
    monkeypatch.setattr(digests, "_openssl", lambda: lambda data: used.append("OpenSSL") or hashlib.sha256(data))
    monkeypatch.setattr(digests, "_source_bytes", 0)
    data = b"x" * 50_000
    assert {digests.source_sha256_hex(data) for _ in range(6)} == {hashlib.sha256(data).hexdigest()}
    assert used == ["built in"] * 4 + ["OpenSSL"] * 2
