"""What the log knows of the versions of `events`: which of them are compacted, and which somebody may still ask for.
docs/specification/compaction.md.

Who calls it: receive's and the outputs' readers, `onlyonce.operate.compact.compaction`. No errors of its own.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from onlyonce.database.connect import ask, do


def compacted(connection: Connection, instance: str) -> int:
    """The version of `events` up to which commits may be compacted: their files are others, and the table's log has
    them no more; -1 for none."""
    rows = ask(connection, "compaction", "compacted", instance=instance)
    return rows[0].upto if rows else -1


def raise_to(connection: Connection, instance: str, version: int) -> None:
    """Note, before it is done, that commits up to a version are compacted."""
    do(connection, "compaction", "raise", instance=instance, upto=version)


def ended(connection: Connection, instance: str, upto: int | None = None) -> int:
    """The last version of `events`, of those up to one (None: of all), with rows of a committed batch of receive; -1
    before the first."""
    version = ask(connection, "compaction", "ended", instance=instance, upto=upto)[0].version
    return -1 if version is None else int(version)


def records(connection: Connection, instance: str, after: int, upto: int) -> int:
    """How many records receive has kept in the versions (after, upto] of `events`."""
    return int(ask(connection, "compaction", "records", instance=instance, after=after, upto=upto)[0].records)


def holds(connection: Connection, instance: str, after: int, upto: int, records: int) -> int:
    """The last version in (after, upto] up to which receive has kept no more than so many records; the first one at
    least.

    There is one.
    """
    asked = {"instance": instance, "after": after, "upto": upto, "records": records}
    return int(ask(connection, "compaction", "holds", **asked)[0].version)


def queries(connection: Connection, instance: str) -> list[Any]:
    """The lives of queries that may go on, each with what its last committed batch has read."""
    return ask(connection, "compaction", "queries", instance=instance)


def last_in(connection: Connection, instance: str, version: int) -> dict[str, int]:
    """By life of receive its last batch whose rows are in `events` up to a version."""
    rows = ask(connection, "compaction", "last_in", instance=instance, version=version)
    return {row.lineage: row.batch_id for row in rows}
