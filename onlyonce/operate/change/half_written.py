"""Batches that a killed driver has left half written, for `onlyonce plan`: a declaration can change once they have
ended.

A batch without a unit begins anew under the changed declaration. One with units ends as it was declared. Where the
change asks for a new life, this withdraws what readers have not seen (`onlyonce.run.withdraw`); only what they have
seen must end before. The run and the new life refuse these; the plan tells them before anything is done.

Who calls it: `onlyonce.operate.change.plan`. Errors: those of `authorities.look`, where a database that may have a unit
can't be asked. Not promised: that no driver is at work, which may end its batch meanwhile.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.declared import Ran
from onlyonce.commitlog.lineages import Lineages
from onlyonce.commitlog.new_lives import NewLives
from onlyonce.database.connect import Database
from onlyonce.declare import loading as declarations
from onlyonce.declare.pipeline import Pipeline
from onlyonce.run import withdraw

HINT = "run once with the declaration (and transform) as it was, so that the batch ends; then change it and plan again"


def told(database: Database, pipeline: Pipeline, ran: Iterable[Ran], begun_anew: Container[str]) -> list[str]:
    """A sentence for each query whose batch must end first. `begun_anew`: the queries that get a new life."""
    return [text for one in ran if (text := _told(database, pipeline, one, begun_anew))]


def _told(database: Database, pipeline: Pipeline, ran: Ran, begun_anew: Container[str]) -> str | None:
    begun, committed = Lineages(database).last_batches(ran.lineage)
    if begun is None or begun == committed:
        return None
    under = Batches(database).find_begun(ran.lineage, begun).plan.declaration_hash
    if under == declarations.fingerprint(pipeline, ran.query):
        return None
    found = NewLives(database).left_so_far(ran.lineage, pipeline.name, ran.query, begun)
    there = found.units
    if ran.query in begun_anew:
        left = withdraw.left(pipeline.name, found)
        seen = {one.sink for one in left if one.must_stay and withdraw.is_written(one, begun)}
        there = [unit for unit in there if unit.sink in seen]
    if not there:
        return None
    return (
        f"batch {ran.lineage}/{begun} is half written: {len(there)} of its units are committed under declaration "
        f"{under}"
    )
