"""Decides, between two batches of receive, that the watermark of a pipeline with several sources goes on without some
of them.

A source that has had nothing for its `idle_after` is idle, and one that was retired is none any more. Where the others
are further, that is a close: its row fixes the new tide and which sources are idle, so a replay of what comes sees the
same. docs/specification/watermark-marker.md.

Who calls it: `receive`, which holds its batches meanwhile. No errors of its own. Not promised: that a source is found
idle at the moment when it is: a look must have found nothing of it since.
"""

from __future__ import annotations

from dataclasses import replace

from onlyonce.commitlog.batches import Batches
from onlyonce.context.run_context import RunContext
from onlyonce.database.connect import Database
from onlyonce.model.batch import to_micros
from onlyonce.model.frontier import Frontier
from onlyonce.model.sources.tides import Tides


def looked(context: RunContext, database: Database) -> tuple[Frontier, Tides] | None:
    """The frontier and how far each source has come, where the pipeline gets further without those that are idle or
    retired; else None."""
    now, known, taken_in = Batches(database).standing(context.instance)
    if not known.of or context.looked_at is None:
        return None
    # Not the clock of now: what has come since the last look is not known yet.
    clock = to_micros(context.looked_at)
    assert clock is not None
    idle_after = {name: one.idle_after for name, one in context.pipeline.inputs.items()}
    tides = known.declared(idle_after, clock).fallen_idle(clock, idle_after, context.source().behind(taken_in))
    least = tides.least()
    if least is None or (now.tide is not None and least <= now.tide):
        return None
    return replace(now, tide=least), tides
