"""How far each source of a pipeline with several has come, by the log.

Who calls it: `batches`, `onlyonce.receive.idling`. No errors of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from onlyonce.database.connect import ask
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.model import stored_names
from onlyonce.model.batch import Plan, to_micros
from onlyonce.model.sources.tides import Tides, Turn

SOURCE = stored_names.SOURCE
"""In the end of a receive batch: whose it is, of several sources."""


class Turns(Transactions):
    """How far the sources of an instance have come."""

    @one_transaction
    def known(self, instance: str) -> Tides:
        """After the last batch or close that tells it; of none before the first."""
        rows = ask(self.connection, "batches", "source_tides", instance=instance)
        return Tides.read(rows[0].source_tides_after if rows else None)

    @one_transaction
    def begun(self, instance: str, plan: Plan, sources: Collection[str]) -> Turn | None:
        """Of a batch that begins now, with the sources that are declared; None where nothing was registered yet."""
        if SOURCE not in plan.source_to:
            return None
        seen = _micros(plan.system_time)
        return Turn(plan.source_to[SOURCE], seen, self.known(instance).declared(sources, seen))


def of_row(row: Any) -> Turn | None:
    """As the batch's row has fixed it; None for a batch of a pipeline with one source."""
    if row.source_tides is None:
        return None
    return Turn(row.source_to[SOURCE], _micros(row.system_time), Tides.read(row.source_tides))


def _micros(time: datetime) -> int:
    found = to_micros(time)
    assert found is not None
    return found
