"""How long a test waits for what must come: only what never comes takes longer, however busy the machine is.

No test asks how fast something is. What must come is waited for this long, what must not come has come by then, and what hangs
is ended by pytest's own `timeout`, which is longer.
"""

from __future__ import annotations

PATIENCE_S = 300.0
