"""How far each source of a pipeline with several has come, by the log.

Who calls it: `batches`, `onlyonce.receive.idling`. No errors of its own.
"""

from __future__ import annotations

from sqlalchemy import Connection

from onlyonce.database.connect import ask
from onlyonce.model.sources.tides import Tides

SOURCE = "source"
"""In the end of a receive batch: whose it is, of several sources."""


def known(connection: Connection, instance: str) -> Tides:
    """After the last batch or close that tells it; of none before the first."""
    rows = ask(connection, "batches", "source_tides", instance=instance)
    return Tides.read(rows[0].source_tides_after if rows else None)
