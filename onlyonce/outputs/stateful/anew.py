"""Takes the rows of earlier lives out of the target of an output with state of its own, when a new life is to begin
from the start.

Such a life reads `events` from the beginning with no state, and its rows take the place of all that were there. They
are taken out before its first batch begins; until one has begun, each start of the life does it again.

| a driver ends             | then                                                              |
|---------------------------|-------------------------------------------------------------------|
| before the rows are out   | the next start takes them out                                     |
| behind that               | the next start takes out nothing                                  |
| once a batch has begun    | the batch is in the log, and the rows are its own: they stay      |

A driver of this life that was overtaken finds in the transaction that takes rows out that its epoch is old
(PostgreSQL), or takes out the files that were there before it asked for its epoch (Delta), and these are of earlier
lives.

Who calls it: `outputs`. Errors: Superseded; Refused for a sink that was changed to one whose rows stay.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

from onlyonce.commitlog.lineages import Lineages
from onlyonce.context.query import Query
from onlyonce.declare.outputs.stateful import ANEW, check_anew
from onlyonce.declare.pipeline import Output
from onlyonce.failpoints import passing
from onlyonce.outputs.results import Step


class Clearing(Protocol):
    """A sink whose rows can be taken out."""

    def clear(self, has_begun: Callable[[], bool]) -> None:
        """Take out all rows that are there now, unless the life that asks has begun a batch."""


def clear(query: Query, root: Output, steps: list[Step]) -> None:
    """Take the rows out, where the query's life begins from the start and has begun no batch."""
    if not (root.stateful and query.start_from.get(ANEW)) or _has_begun(query):
        return
    for step in steps:
        check_anew(f"output {step.output.name}", step.output)
        passing("anew-before-clear")
        cast(Clearing, step.writer).clear(partial(_has_begun, query))
        passing("anew-after-clear")
        query.log.info("rows of earlier lives are taken out", output=step.output.name)


def _has_begun(query: Query) -> bool:
    return Lineages(query.database).has_begun(query.driver)
