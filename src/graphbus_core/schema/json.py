"""What may be published: values that JSON has."""

from __future__ import annotations

from typing import Any

Json = Any
"""A JSON value: dict, list, str, int, float, bool or None."""
