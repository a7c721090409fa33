"""Takes the rows of earlier lives out of the target of an output with state of its own, when a new life is to begin from the start.

Such a life reads `events` from the beginning with no state, and its rows take the place of all that were there. They are taken out before its first
batch begins; until one has begun, each start of the life does it again.

| a driver ends             | then                                                              |
|---------------------------|-------------------------------------------------------------------|
| before the rows are out   | the next start takes them out                                     |
| behind that               | the next start takes out nothing                                  |
| once a batch has begun    | the batch is in the log, and the rows are its own: they stay      |

A driver of this life that was overtaken finds in the transaction that takes rows out that its epoch is old (PostgreSQL), or takes out the files that were there
before it asked for its epoch (Delta), and these are of earlier lives.

Who calls it: `outputs`. Errors: Superseded.
"""

from __future__ import annotations

from onlyonce.commitlog import lineages
from onlyonce.context.query import Query
from onlyonce.database.connect import run
from onlyonce.declare.pipeline import Output
from onlyonce.declare.stateful import ANEW
from onlyonce.failpoints import passing
from onlyonce.outputs.results import Step


def clear(query: Query, root: Output, steps: list[Step]) -> None:
    """Take the rows out, where the query's life begins from the start and has begun no batch."""
    if not (root.stateful and query.start_from.get(ANEW)):
        return
    for step in steps:
        passing("anew-before-clear")
        step.writer.clear(lambda: _has_begun(query))  # type: ignore[attr-defined]
        passing("anew-after-clear")
        query.log.info("rows of earlier lives are taken out", output=step.output.name)


def _has_begun(query: Query) -> bool:
    def ask(connection: object) -> bool:
        lineages.check_epoch(connection, query.lineage, query.driver.epoch)  # type: ignore[arg-type]
        return lineages.last_batches(connection, query.lineage)[0] is not None  # type: ignore[arg-type]

    return run(query.database, ask)
