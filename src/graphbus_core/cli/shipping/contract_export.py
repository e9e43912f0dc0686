"""`graphbus contract export`: the promises of the agents in formats that others read."""

from __future__ import annotations

import click


@click.command("export", short_help="Write the contracts as JSON Schema, OpenAPI or AsyncAPI.")
def export() -> int:
    """Write what agents promise in a format that others read.

    \b
    Examples:
      graphbus contract export --format jsonschema
    """
    return 0
