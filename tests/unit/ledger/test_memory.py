"""MemoryLedger passes the suite of all engines."""

from __future__ import annotations

from graphbus_core.clock import Clock
from graphbus_core.hosting.state import States
from graphbus_core.ledger.memory import MemoryLedger
from graphbus_core.ledger.seam import Ledger
from graphbus_core.testing.ledger_suite import LedgerSuite


class TestMemoryLedger(LedgerSuite):
    def make(self, clock: Clock) -> MemoryLedger:
        return MemoryLedger(clock, lease_s=self.lease_s)

    def states(self, ledger: Ledger) -> States:
        assert isinstance(ledger, MemoryLedger)
        return ledger.states


class TestMemoryLedgerWithStatesInSqlite(TestMemoryLedger):
    def make(self, clock: Clock) -> MemoryLedger:
        return MemoryLedger(clock, States(""), lease_s=self.lease_s)
