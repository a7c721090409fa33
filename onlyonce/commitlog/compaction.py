"""What the log knows of the versions of `events`: which of them are compacted, and which somebody may still ask for. PROTOCOL.md, 19.

Who calls it: receive's and the outputs' readers, `onlyonce.operate.compact.compaction`. No errors of its own.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from onlyonce.database.connect import ask, do


def compacted(connection: Connection, instance: str) -> int:
    """The version of `events` up to which commits may be compacted: their files are others, and the table's log has them no more; -1 for none."""
    rows = ask(connection, "compaction", "compacted", instance=instance)
    return rows[0].upto if rows else -1


def raise_to(connection: Connection, instance: str, version: int) -> None:
    """Note, before it is done, that commits up to a version are compacted."""
    do(connection, "compaction", "raise", instance=instance, upto=version)


def ended(connection: Connection, instance: str) -> int:
    """The last version of `events` with rows of a committed batch of receive; -1 before the first."""
    version = ask(connection, "compaction", "ended", instance=instance)[0].version
    return -1 if version is None else int(version)


def queries(connection: Connection, instance: str) -> list[Any]:
    """The lives of queries that may go on, each with what its last committed batch has read."""
    return ask(connection, "compaction", "queries", instance=instance)


def last_in(connection: Connection, instance: str, version: int) -> dict[str, int]:
    """By life of receive its last batch whose rows are in `events` up to a version."""
    rows = ask(connection, "compaction", "last_in", instance=instance, version=version)
    return {row.lineage: row.batch_id for row in rows}
