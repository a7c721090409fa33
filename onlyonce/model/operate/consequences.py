"""What each kind of change of a declaration needs, and why. Pure: a table.

Who reads it: `plan`, which finds the changes; `tests/spark/outputs/test_changes.py` tries each of them on Spark.
"""

from __future__ import annotations

from enum import StrEnum


class Need(StrEnum):
    """What a change needs before its results are those of the new declaration alone."""

    NOTHING = "nothing"
    BACKFILL = "a backfill"
    LINEAGE = "a new lineage"
    BOTH = "a new lineage, a backfill"
    NAME = "another name"

    @property
    def stops(self) -> bool:
        """Whether a run under the old lineage would mix two declarations, or die in Spark."""
        return self in (Need.LINEAGE, Need.BOTH, Need.NAME)


CONSEQUENCES: dict[str, tuple[Need, str]] = {
    "column added": (Need.NOTHING, "`events` gets the column at the next run; records from before have null there"),
    "column removed": (Need.NOTHING, "`events` keeps the column, null from now on; its field counts as unknown"),
    "column type": (Need.NAME, "`events` holds one type for a column: give the new one another name"),
    "record_id": (Need.NOTHING, "but a re-delivery of what was kept before the change is not recognised any more"),
    "record_id or place": (
        Need.NAME,
        "what is kept is known one way, what comes would be known another: declare a pipeline of another name",
    ),
    "event_time": (
        Need.NAME,
        "the max event time, frontiers and closed windows are of the old column: declare a pipeline of another name",
    ),
    "max_ahead": (Need.NOTHING, "what was invalid by the old bound stays so until: onlyonce release"),
    "max_record_bytes": (
        Need.NOTHING,
        "from the next batch on; what was invalid by the old bound is kept as its beginning only",
    ),
    "inbox": (Need.NOTHING, "the next run asks whether its files were moved, or are others: onlyonce inbox"),
    "max_files_a_batch": (Need.NOTHING, "files that are registered stay in the batch that they were given"),
    "format": (
        Need.NAME,
        "files that are registered were counted by the old one: declare a pipeline of another name, with an inbox "
        "of its own",
    ),
    "topic": (Need.NAME, "offsets of one topic say nothing of another source: declare a pipeline of another name"),
    "beside": (Need.NOTHING, "from the next batch on; a record id that it gives is another id from then on"),
    "isolation": (Need.NOTHING, "from the next batch on; what was passed over is not looked at again"),
    "subscription": (Need.NOTHING, "but what waits in the old one is not landed any more, and its ids are its own"),
    "one source or several": (
        Need.NAME,
        "the order of the batches is in another registry: declare a pipeline of another name",
    ),
    "source added": (
        Need.NOTHING,
        "the watermark waits for it: it stays where it is until the source has sent records as far, or nothing "
        "for its idle_after",
    ),
    "source added, never idle": (
        Need.NOTHING,
        "the watermark waits for it: it stays where it is until the source has sent records as far; without an "
        "idle_after it waits for ever",
    ),
    "source retired": (
        Need.NOTHING,
        "it holds the watermark back no more: windows that waited for it alone close with the next run. What is "
        "registered of it must be taken in "
        "before; declared again under this name, it goes on where it stopped",
    ),
    "another kind of source": (
        Need.NAME,
        "positions in the one say nothing of the other: give the new source another name",
    ),
    "source's schema": (Need.NOTHING, "from the next batch of the source on"),
    "source's columns": (
        Need.NOTHING,
        "from the next batch of the source on; a record id that is made otherwise is another id",
    ),
    "source's idle_after": (Need.NOTHING, "from the next look on: the watermark waits for the source for so long"),
    "mode to exactly_once": (
        Need.NOTHING,
        "before its first batch the next run puts the ids of one dedup horizon into the catalog, from `events`",
    ),
    "mode to at_least_once": (Need.NOTHING, "from the next batch on; what has begun ends as it began"),
    "output added": (Need.NOTHING, "its stream reads `events` from the start"),
    "output removed": (Need.NOTHING, "its table stays; declared again under this name, it goes on where it stopped"),
    "made added": (
        Need.BACKFILL,
        "it is made from windows that close from now on; a backfill adds those closed before",
    ),
    "result added, no window": (Need.NOTHING, "it has rows from now on; what the function gave before is not in it"),
    "made removed": (Need.NOTHING, "its table stays; what closes meanwhile is missing there if it is declared again"),
    "transform, no state": (
        Need.BACKFILL,
        "rows from now on are of the new function; those written before are of the old",
    ),
    "transform, no window": (Need.NOTHING, "rows from now on are of the new function; those written before stay"),
    "transform, totals": (Need.LINEAGE, "its state holds sums of the old function; a new life sums up all of `events`"),
    "transform": (Need.BOTH, "open windows hold state of the old function: Spark refuses it or mixes both"),
    "made transform": (Need.BACKFILL, "windows that close from now on are of the new function"),
    "window": (Need.BOTH, "the state has windows of the old size, which Spark would go on to write beside the new"),
    "lateness": (
        Need.LINEAGE,
        "Spark's watermark has its own memory: rows in time by the new lateness would be dropped",
    ),
    "panes": (Need.LINEAGE, "what is final is another matter in early panes; a new life writes what is open anew"),
    "trigger": (Need.NOTHING, "from the next batch on"),
    "session": (
        Need.NAME,
        "sessions that go over the change can't be told apart: a new output reads `events` from the start",
    ),
    "join": (
        Need.NAME,
        "its state has rows of the old join, and its table rows that a new one would write again: a new output "
        "reads `events` from the start",
    ),
    "state": (
        Need.LINEAGE,
        "Spark keeps the state and the timers of the processor as it was: a new life reads all of `events`, and "
        "its rows take the place of those that are there",
    ),
    "state, sent": (
        Need.NAME,
        "Spark keeps the state and the timers of the processor as it was, and what is sent can't be taken back: a "
        "new output reads `events` from the start",
    ),
    "state or none": (
        Need.NAME,
        "with a state of its own and without is another result: a new output reads `events` from the start",
    ),
    "processor": (
        Need.NOTHING,
        "rows from now on are of the new processor, over the state that the old one has left; where that means "
        "something else now, change state_version",
    ),
    "window or none": (
        Need.NAME,
        "with windows and without is another result: a new output reads `events` from the start",
    ),
    "from_output": (
        Need.NAME,
        "whose windows it is made of is another matter: a new output reads `events` from the start",
    ),
    "upstream": (
        Need.BACKFILL,
        "windows that close from now on are made of rows of the new function of an output before this one; those "
        "written before are of the old",
    ),
    "target": (Need.BACKFILL, "the new target gets windows from now on; a backfill puts those closed before there too"),
    "target, no window": (Need.NAME, "the new target would have rows from now on only: a new output reads all"),
    "sink": (Need.NAME, "the rows that are there were written another way: name a new table, or a new output"),
    "stable_input": (Need.NOTHING, "from the next batch on"),
    "late": (Need.NOTHING, "from the end of the next run on"),
    "on_backfill": (Need.NOTHING, "from the next backfill on"),
    "lookups": (
        Need.NOTHING,
        "from the next batch on; what is written saw the old table: onlyonce backfill … --lookups now",
    ),
    "on_backfill, correct": (
        Need.NAME,
        "what each window added is kept from the first row of a table on, or not at all",
    ),
}
"""Kind of change → what it needs, and why. See `plan` for how an output's options come to a kind."""
