"""What may be imported beside the standard library."""

from __future__ import annotations

import sys
from typing import NamedTuple


class Allowed(NamedTuple):
    """What may be imported beside the standard library: the packages that the project uses, or everything."""

    packages: frozenset[str]
    is_everything: bool = False

    def has(self, package: str) -> bool:
        """Tell whether a package may be imported."""
        return self.is_everything or package in self.packages or package in sys.stdlib_module_names
