"""What of old records may go by the log, and the removal of them that begins.

Who calls it: `onlyonce.operate.compact.retention`, and `plan`, which says what another `keep_events` gives up. Errors:
none of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from onlyonce.commitlog.operate.compaction import Compactions
from onlyonce.commitlog.operate.removals import Removal, Removals
from onlyonce.commitlog.outputs.backfills import Backfills
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.declare.pipeline import Output, Pipeline
from onlyonce.model.batch import to_micros
from onlyonce.model.operate import retaining
from onlyonce.model.operate.retaining import Decision, Hold


class KeepEvents(Transactions):
    """Decisions about old records."""

    @one_transaction
    def decide(self, pipeline: Pipeline, keep: timedelta) -> Decision:
        """What may go by the log and the clock."""
        instance = pipeline.name
        holds = [*self._holds(pipeline)]
        tide = Backfills(self.connection).frontier_at(instance, retaining.furthest(holds).upto).tide
        newest = Backfills(self.connection).frontier_at(instance, Compactions(self.connection).ended(instance)).tide
        now = to_micros(datetime.now(UTC)) or 0
        return retaining.decide(keep, now, tide, newest, holds, Removals(self.connection).kept_from(instance))

    @one_transaction
    def begin(self, pipeline: Pipeline) -> Removal | None:
        """Decide and note what goes; None where nothing more can go. The removal that has begun, if there is one."""
        removals, keep = Removals(self.connection), pipeline.keep_events
        if keep is None:
            return removals.begun(pipeline.name)
        return removals.begin(pipeline.name, keep, lambda: self.decide(pipeline, keep))

    def _holds(self, pipeline: Pipeline) -> Iterator[Hold]:
        instance = pipeline.name
        yield Hold("the dedup horizon", Removals(self.connection).beyond_horizon(instance))
        for what in Removals(self.connection).under_way(instance):
            yield Hold(what, retaining.NOTHING)
        roots = {root.name: root for root in pipeline.roots()}
        for one in Compactions(self.connection).queries(instance):
            if one.query in roots:
                upto = retaining.done_upto(Compactions(self.connection).reader(instance, one))
                yield Hold(one.query, upto, self._closed_before(instance, roots[one.query]))
            elif one.query != "receive":
                yield Hold(f"{one.query}, which is not declared", retaining.NOTHING)

    def _closed_before(self, instance: str, root: Output) -> int | None:
        if root.window is None:
            return None
        closed = Backfills(self.connection).reach(instance, root.name).closed_until(root)
        late: list[int] = []
        if root.late == "recompute":
            kept = Removals(self.connection).kept_from(instance)
            first = 0 if kept is None else retaining.first_moment(kept, root.window)
            windows = Backfills(self.connection).late_windows(instance, root.name)
            late = [start for start, _ in windows if start >= first]
        return retaining.closed_before(root.window, closed, late)
