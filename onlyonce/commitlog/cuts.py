"""Choose what to remove from `events` and the log: compacted versions, old records (`keep_events`) and old batches.
docs/specification/compaction.md, docs/specification/log-retention.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from onlyonce.api.pipeline import Output, Pipeline
from onlyonce.commitlog.backfills import Backfills, Panes
from onlyonce.commitlog.new_incarnations import NewIncarnations
from onlyonce.commitlog.removals import Removal, Removals
from onlyonce.core import retention
from onlyonce.core.batch import first_reading, read_upto, to_micros
from onlyonce.core.retention import Decision, Hold, Reader
from onlyonce.database.connect import Transactions, ask, do, one_transaction


@dataclass(frozen=True)
class LiveIncarnation:
    """A live incarnation of a query, with what its last committed batch has read; None before its first batch."""

    incarnation: str
    query: str
    ordinal: int
    start_from: dict[str, Any] | None
    batch_id: int | None
    source_from: dict[str, Any] | None
    source_to: dict[str, Any] | None


class Compactions(Transactions):
    """Which versions of `events` are compacted, and which a query may still read commit by commit."""

    @one_transaction
    def compacted(self, instance: str) -> int:
        """Return the version of `events` up to which commits may be compacted; -1 if none is.

        A compacted commit's rows are in other files, and the table's log no longer has the commit.
        """
        rows = ask(self.connection, "compaction", "compacted", instance=instance)
        return rows[0].upto if rows else -1

    @one_transaction
    def raise_to(self, instance: str, version: int) -> None:
        """Note, before the compaction, that commits up to a version are compacted."""
        do(self.connection, "compaction", "raise", instance=instance, upto=version)

    @one_transaction
    def ended(self, instance: str, upto: int | None = None) -> int:
        """Return the last version of `events` with rows of a committed receive batch; -1 before the first.

        `upto`: consider only versions up to this one (None: all).
        """
        version = ask(self.connection, "compaction", "ended", instance=instance, upto=upto)[0].version
        return -1 if version is None else int(version)

    @one_transaction
    def records(self, instance: str, after: int, upto: int) -> int:
        """Return how many records receive has kept in the versions (after, upto] of `events`."""
        return int(ask(self.connection, "compaction", "records", instance=instance, after=after, upto=upto)[0].records)

    @one_transaction
    def holds(self, instance: str, after: int, upto: int, records: int) -> int:
        """Return the last version in (after, upto] up to which receive has kept at most this number of records.

        Return the first version of the interval if that one alone holds more. The interval must hold a committed
        version.
        """
        asked = {"instance": instance, "after": after, "upto": upto, "records": records}
        return int(ask(self.connection, "compaction", "holds", **asked)[0].version)

    @one_transaction
    def queries(self, instance: str) -> list[LiveIncarnation]:
        """Return the live incarnations of queries."""
        return [
            LiveIncarnation(**row._mapping) for row in ask(self.connection, "compaction", "queries", instance=instance)
        ]

    @one_transaction
    def last_in(self, instance: str, version: int) -> dict[str, int]:
        """Return, by incarnation of receive, its last batch whose rows are in `events` up to a version."""
        rows = ask(self.connection, "compaction", "last_in", instance=instance, version=version)
        return {row.incarnation: row.batch_id for row in rows}

    @one_transaction
    def reader(self, instance: str, one: LiveIncarnation) -> Reader:
        """Return how far the incarnation of an output has read, and where a new incarnation would begin."""
        again = NewIncarnations(self.connection).begins_at(instance, one.query, one.incarnation, None) or {}
        began = [version for at in (one.source_from, one.source_to) if (version := first_reading(at)) is not None]
        return Reader(
            one.query, one.batch_id, read_upto(one.source_from), read_upto(one.source_to), int(again.get("version", 0)),
            began[0] if began else None,
        )  # fmt: skip

    @one_transaction
    def events_upto(self, instance: str) -> tuple[int, str | None]:
        """Return the version of `events` up to which no query reads commit by commit, and the query that holds the next
        ones.
        """
        readers = [self.reader(instance, one) for one in self.queries(instance) if one.query != "receive"]
        return retention.whole_buckets_from(self.ended(instance), readers, self.compacted(instance))


# Which old records may be removed, and the begin of their removal.


class KeepEvents(Transactions):
    """Decisions about old records."""

    @one_transaction
    def decide(self, pipeline: Pipeline, keep: timedelta) -> Decision:
        """Return what may be removed, by the log and the clock."""
        instance = pipeline.name
        holds = [*self._holds(pipeline)]
        max_event_time = Backfills(self.connection).frontier_at(instance, retention.furthest(holds).upto).max_event_time
        newest = (
            Backfills(self.connection)
            .frontier_at(instance, Compactions(self.connection).ended(instance))
            .max_event_time
        )
        now = to_micros(datetime.now(UTC)) or 0
        return retention.decide(keep, now, max_event_time, newest, holds, Removals(self.connection).kept_from(instance))

    @one_transaction
    def begin(self, pipeline: Pipeline) -> Removal | None:
        """Decide and note what is removed; return the removal, or None if nothing more can be removed.

        A removal that has already begun is returned as it is.
        """
        removals, keep = Removals(self.connection), pipeline.keep_events
        if keep is None:
            return removals.begun(pipeline.name)
        return removals.begin(pipeline.name, keep, lambda: self.decide(pipeline, keep))

    def _holds(self, pipeline: Pipeline) -> Iterator[Hold]:
        instance = pipeline.name
        yield Hold("the dedup horizon", Removals(self.connection).beyond_horizon(instance))
        for what in Removals(self.connection).under_way(instance):
            yield Hold(what, retention.NOTHING)
        roots = {root.name: root for root in pipeline.roots()}
        for one in Compactions(self.connection).queries(instance):
            if one.query in roots:
                upto = retention.done_upto(Compactions(self.connection).reader(instance, one))
                yield Hold(one.query, upto, self._closed_before(instance, roots[one.query]))
            elif one.query != "receive":
                yield Hold(f"{one.query}, which is not declared", retention.NOTHING)

    def _closed_before(self, instance: str, root: Output) -> int | None:
        if root.window is None:
            return None
        closed = Backfills(self.connection).reach(instance, root.name).closed_until(root)
        late: list[int] = []  # while a backfill is begun, nothing is removed (`under_way`)
        if root.late_trigger:
            kept = Removals(self.connection).kept_from(instance)
            first = 0 if kept is None else retention.first_moment(kept, root.window)
            windows = Backfills(self.connection).late_windows(instance, root.name, root.late_trigger)
            late = [start for start, _ in windows if start >= first]
        if root.has_early_sessions:  # a pane reads the records of all open sessions again
            late += [start for start, _ in Panes(self.connection).open_panes(instance, root.name)]
        return retention.closed_before(root.window, closed, late)


# Old batches of outputs are cut from the log, and what they met of each window is added up.
#
# A batch is in the sums of its incarnation before it is cut (`Retention` in `removals`). A cut consists of statements,
# each a transaction over a bounded number of batches. Each statement decides by what it finds. A killed statement has
# done nothing, and the next cut continues.


AT_ONCE = 500
"""Batches for each transaction: short locks, on rows that no driver writes any more."""


@dataclass(frozen=True)
class Kept:
    """To what age the log was last cut, and from when on it has all batches of outputs; None if it was never cut."""

    keep: timedelta | None
    since: datetime | None


@dataclass(frozen=True)
class OldIncarnation:
    """An incarnation of an output with old batches.

    upto       the last batch that may be cut
    read_upto  how far the live incarnation has read `events`; None if it has read nothing
    """

    incarnation: str
    query: str
    upto: int
    read_upto: int | None


@dataclass(frozen=True)
class First:
    """The batch at which a new incarnation of an output would begin to read. It is not cut. For sessions it is the
    first batch.
    """

    incarnation: str
    batch_id: int


class LogCuts(Transactions):
    """Cuts of the log of a pipeline with `keep_log`."""

    @one_transaction
    def kept(self, instance: str) -> Kept:
        """Return what is left of a pipeline's log."""
        rows = ask(self.connection, "keep_log", "kept", instance=instance)
        return Kept(rows[0].keep_log, rows[0].log_kept_from) if rows else Kept(None, None)

    @one_transaction
    def limit(self, keep: timedelta) -> datetime:
        """Return the moment that is this long ago, by the database's clock."""
        time: datetime = ask(self.connection, "keep_log", "limit", keep=keep)[0].time
        return time

    @one_transaction
    def incarnations(self, instance: str, sessions: Collection[str], limit: datetime) -> list[OldIncarnation]:
        """Return the incarnations of outputs with batches from before a moment.

        `sessions`: the outputs with session windows. The log does not know which of these are open, so open windows
        hold back none of their batches.
        """
        rows = ask(self.connection, "keep_log", "incarnations", instance=instance, sessions=list(sessions), limit=limit)
        return [OldIncarnation(*tuple(row)) for row in rows]

    @one_transaction
    def first_open(self, instance: str, output: str) -> First | None:
        """Return the batch at which a new incarnation of an output would begin to read; None if no window is open."""
        rows = ask(self.connection, "new_incarnations", "oldest_open", instance=instance, output=output)
        return First(rows[0].incarnation, rows[0].batch_id) if rows else None

    @one_transaction
    def begin(self, instance: str, keep: timedelta, limit: datetime) -> None:
        """Note, before the cut, that batches from before a moment are cut."""
        do(self.connection, "keep_log", "begin", instance=instance, keep=keep, limit=limit)

    @one_transaction
    def cut(
        self, incarnation: OldIncarnation, limit: datetime, after: int, first: First | None, *, dry_run: bool
    ) -> tuple[int | None, int]:
        """Cut the next batches of an incarnation after one, at most `AT_ONCE`.

        Return up to which batch it has looked (None: none is left), and how many it cut, or would cut with `dry_run`.
        """
        kept_batch = first.batch_id if first and first.incarnation == incarnation.incarnation else None
        [row] = ask(
            self.connection,
            "keep_log",
            "cut",
            incarnation=incarnation.incarnation,
            upto=incarnation.upto,
            read_upto=incarnation.read_upto,
            limit=limit,
            after=after,
            first=kept_batch,
            at_once=AT_ONCE,
            dry_run=dry_run,
        )
        return row.upto, row.batches
