"""Batches that a killed driver has left half written, for `onlyonce plan`: a declaration can change once they have ended.

A batch without a unit begins anew under the changed declaration. One with units ends as it was declared, or with the new life that the change
asks for (`onlyonce.run.withdraw`). The run refuses the rest; the plan tells it before anything is done.

Who calls it: `onlyonce.operate.plan`. Errors: those of `authorities.look`, where a database that may have a unit can't be asked. Not promised: that
no driver is at work, which may end its batch meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection

from onlyonce.commitlog import authorities, batches, lineages, units
from onlyonce.commitlog.declared import Ran
from onlyonce.declare import loading as declarations
from onlyonce.declare.pipeline import Pipeline

HINT = "run once with the declaration (and transform) as it was, so that the batch ends; then change it and plan again"


def told(connection: Connection, pipeline: Pipeline, staying: Iterable[Ran]) -> list[str]:
    """A sentence for each query that stays in its life and whose batch has units under another declaration."""
    return [text for one in staying if (text := _told(connection, pipeline, one))]


def _told(connection: Connection, pipeline: Pipeline, ran: Ran) -> str | None:
    begun, committed = lineages.last_batches(connection, ran.lineage)
    if begun is None or begun == committed:
        return None
    under = batches.find_begun(connection, ran.lineage, begun).plan.declaration_hash
    if under == declarations.fingerprint(pipeline, ran.query):
        return None
    there = [*units.of_batch(connection, ran.lineage, begun), *authorities.look(connection, ran.lineage, begun)]
    if not there:
        return None
    return f"batch {ran.lineage}/{begun} is half written: {len(there)} of its units are committed under declaration {under}"
