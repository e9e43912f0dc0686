"""Amounts of money as people read them."""

from __future__ import annotations


def dollars(usd: float) -> str:
    """Give `$0`, `$0.0123` or `$1,234.50`: four places where two would hide the amount."""
    if not usd:
        return "$0"
    return f"${usd:,.2f}" if usd >= 0.1 else f"${usd:.4f}"
