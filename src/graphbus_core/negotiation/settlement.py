"""What became of the changes that a session accepted, written into its record: they are in the source files, or why not."""

from __future__ import annotations

from contextlib import suppress

from graphbus_core.editing.promotion import Recovered, recover
from graphbus_core.errors import NegotiationError
from graphbus_core.model.config import BuildConfig
from graphbus_core.negotiation.transcript import settle_session


def recover_sessions(config: BuildConfig) -> tuple[Recovered, ...]:
    """End every promotion and undo that an earlier process left unfinished, so that nobody reads half of a change.

    Raises:
        EditError: One cannot be brought to its end.
    """
    ended = recover(config)
    for each in ended:
        if each.kind == "promote" and each.is_completed:
            with suppress(NegotiationError):  # the files are right, and the journal knows it too
                settle_session(config.artifacts_dir, each.session, is_applied=True)
    return ended


def refuse_session(config: BuildConfig, session: str, reason: str) -> None:
    """Keep why nothing was written, if the session is kept: what refused it is more important than its record."""
    with suppress(NegotiationError):
        settle_session(config.artifacts_dir, session, refusal=reason)
