"""What a call can cost at most, known before it is made."""

from __future__ import annotations

from graphbus_core.llm.client import Price
from graphbus_core.llm.providers import Provider, host_of, is_loopback

FREE = Price(0.0, 0.0)


def price_of(provider: Provider, model: str) -> Price | None:
    """Give the price of a model: what the settings say, else nothing for a server on this machine, else the table of prices that
    comes with the installed libraries, at the dearest rate that may apply. None: it is not known. Asks no network.
    """
    if provider.input_usd or provider.output_usd:
        return Price(provider.input_usd, provider.output_usd)
    if is_loopback(host_of(provider)):
        return FREE
    return table_price(provider, model)


def table_price(provider: Provider, model: str) -> Price | None:
    """Give the price as the table of prices has it."""
    from graphbus_core.llm import sdk

    return sdk.known_price(provider.prices, model) if provider.prices and not sdk.missing_package(provider) else None


def is_from_table(provider: Provider) -> bool:
    """True when what a call has cost is looked up in the table, where reading the provider's cache has a rate of its own."""
    return bool(provider.prices) and not (provider.input_usd or provider.output_usd)
