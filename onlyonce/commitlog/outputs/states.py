"""What Spark tells of the state of an output: how large it is, and what its last batch has put in and taken out.

For people; nothing is decided by it.

Who calls it: `onlyonce.outputs.releases.dropped`, for each progress that it sees. No errors of its own. Not promised: a
progress of each batch. A driver that is killed behind a batch takes its progress along.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import pyarrow as pa

from onlyonce.database.arrays import do_rows
from onlyonce.database.transactions import Transactions, one_transaction


@dataclass(frozen=True)
class State:
    """One operator of one batch. Bytes are those of Spark; None: the operator or the store does not tell."""

    operator: int
    kind: str
    rows_in: int
    rows_out: int
    timers_set: int | None
    timers_ended: int | None
    disk_bytes: int | None
    memory_bytes: int


class States(Transactions):
    """The state of outputs, as Spark tells it."""

    @one_transaction
    def note(self, lineage: str, batch_id: int, states: list[State]) -> None:
        """Store what a batch tells in the place of what the one before told."""
        told = pa.Table.from_pylist([asdict(state) for state in states])
        do_rows(self.connection, "states", "note", told, lineage=lineage, batch_id=batch_id)
