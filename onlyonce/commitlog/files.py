"""The files of sharded sinks: which attempt's file counts, its pane, and whether it has its final name.

The log says which files must exist; it does not check that they do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime

from onlyonce.core.backfill import Span
from onlyonce.core.file_names import FileKey
from onlyonce.core.shards import Standing, Temporary, Winner, Written
from onlyonce.core.units import UnitId
from onlyonce.database.connect import Transactions, ask, do, one_transaction

Times = tuple[datetime | None, datetime | None]
"""The start and end of a window; None for an output without windows."""


class Files(Transactions):
    """The files of sharded sinks."""

    @one_transaction
    def record(self, unit: UnitId, place: str, shards: int, files: Iterable[Written]) -> None:
        """Note which files count, in the transaction of the unit's claim."""
        as_json = json.dumps([asdict(file) for file in files], default=datetime.isoformat)
        do(
            self.connection, "files", "record",
            incarnation=unit.incarnation, batch_id=unit.batch_id, output=unit.sink, partition=unit.partition,
            place=place, shards=shards, files=as_json,
        )  # fmt: skip

    @one_transaction
    def of_unit(self, unit: UnitId) -> set[str]:
        """Return the temporary files of a unit that count."""
        rows = ask(
            self.connection, "files", "of_unit",
            incarnation=unit.incarnation, batch_id=unit.batch_id, output=unit.sink, partition=unit.partition,
        )  # fmt: skip
        return {row.temporary for row in rows}

    @one_transaction
    def give_panes(self, incarnation: str, batch_id: int, output: str) -> None:
        """Number the panes of a batch's windows, in the transaction that ends the batch. A repetition changes nothing.

        Each batch that writes a window makes its next pane. The generation of a backfill's pane counts the backfills of
        the window; any other pane has generation 0.
        """
        # The rows are new in this transaction. The planner has no statistics of them and would choose a nested loop.
        self.connection.exec_driver_sql("SET LOCAL enable_nestloop = off")
        do(self.connection, "files", "give_panes", incarnation=incarnation, batch_id=batch_id, output=output)
        self.connection.exec_driver_sql("SET LOCAL enable_nestloop TO DEFAULT")

    @one_transaction
    def next_panes(self, instance: str, output: str, windows: Iterable[Times]) -> dict[Times, int]:
        """Return the number of the next pane of each window, as `give_panes` will give it."""
        as_json = json.dumps(
            [{"window_start": start, "window_end": end} for start, end in windows], default=datetime.isoformat
        )
        rows = ask(self.connection, "files", "next_panes", instance=instance, output=output, windows=as_json)
        return {(row.window_start, row.window_end): row.pane for row in rows}

    @one_transaction
    def unnamed(self, incarnation: str, batch_id: int, output: str) -> dict[FileKey, int]:
        """Return the numbers of a batch's files that a function must name, once `give_panes` has numbered the panes."""
        rows = ask(self.connection, "files", "unnamed", incarnation=incarnation, batch_id=batch_id, output=output)
        return {FileKey(row.window_start, row.window_end, row.pane, row.shard): row.file_no for row in rows}

    @one_transaction
    def named(self, place: str, names: Iterable[str]) -> list[tuple[str, FileKey]]:
        """Return the files of a place that have one of these names or will get it."""
        rows = ask(self.connection, "files", "named", place=place, names=list(names))
        return [(row.name, FileKey(row.window_start, row.window_end, row.pane, row.shard)) for row in rows]

    @one_transaction
    def give_names(self, names: Mapping[int, str]) -> None:
        """Note the final names of files by their numbers, in the transaction that ends the batch."""
        do(self.connection, "files", "give_names", numbers=[*names], names=[*names.values()])

    @one_transaction
    def windows_in(self, instance: str, output: str, span: Span) -> set[tuple[datetime, datetime]]:
        """Return the windows of an output that have files and start in the span."""
        start, stop = span.times
        rows = ask(
            self.connection, "files", "windows_in", instance=instance, output=output, window_from=start, window_to=stop
        )  # fmt: skip
        return {(row.window_start, row.window_end) for row in rows}

    @one_transaction
    def current(self, instance: str, output: str) -> list[Winner]:
        """Return the files of each window's newest pane, whether or not they have their final names."""
        rows = ask(self.connection, "files", "current", instance=instance, output=output)
        return [Winner(**row._mapping) for row in rows]

    @one_transaction
    def waiting(self, instances: list[str] | None, panes: int, away: list[str]) -> list[Winner]:
        """Return the files of the first `panes` panes that have a file without its final name.

        instances   whose panes; None: those of all
        away        places whose panes are left out
        """
        asked = {"instances": instances or [], "everything": instances is None, "panes": panes, "away": away}
        rows = ask(self.connection, "files", "waiting", **asked)
        return [Winner(**row._mapping) for row in rows]

    @one_transaction
    def note_final_names(self, numbers: list[int]) -> int:
        """Note that files have their final names, by their numbers. Return how many had none before."""
        return do(self.connection, "files", "finalized", numbers=numbers)

    @one_transaction
    def places(self) -> set[str]:
        """Return the places that have files by the log."""
        return {row.place for row in ask(self.connection, "files", "places")}

    @one_transaction
    def standings(self, places: list[str], temporaries: dict[str, Temporary]) -> dict[str, Standing]:
        """Return what the log says about temporary files, by name. `places`: all spellings of the place that has them.

        Call it after they were listed: then the log already has the batch that began each listed file.
        """
        wanted = [
            {
                "temporary": name,
                "incarnation_no": file.incarnation_no,
                "batch_id": file.batch_id,
                "output": file.output,
                "partition": file.partition,
            }
            for name, file in temporaries.items()
        ]
        rows = ask(self.connection, "files", "standings", places=places, temporaries=json.dumps(wanted))
        return {row.temporary: Standing(row.winner, row.settled, row.epoch) for row in rows}
