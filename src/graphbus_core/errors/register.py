"""Code -> sentence and hint, of all families. Codes are public: never reused, never renumbered.

Nothing of it is imported before something is refused.
"""

from __future__ import annotations

from graphbus_core.errors import deploying, editing, models, negotiating, reading, running, stored, usage
from graphbus_core.errors.entry import Entry

REGISTER: dict[str, Entry] = {
    **usage.ENTRIES,
    **reading.ENTRIES,
    **editing.ENTRIES,
    **negotiating.ENTRIES,
    **models.ENTRIES,
    **stored.ENTRIES,
    **running.ENTRIES,
    **deploying.ENTRIES,
}
