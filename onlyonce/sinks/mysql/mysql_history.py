"""Histories (SCD type 2) in MySQL, as `postgres_history` has them: each change is a version of its key's row, with the
time from which and to which it held.

A version ends where the next change of its key begins, by the order of `newest_by`. A delete is no version: it ends the
one before it, and is kept in `<table>_deleted`. After a unit's rows are in, the changes of its keys are gathered from
both tables, and the ends of their versions found anew. All is one transaction, that of the unit's claim. What was
written before is written over itself.

Who calls it: `mysql_rows`. Errors: those of the server. Not promised: that times grow. Where the source's clock went
back, a version ends before it begins.
"""

from __future__ import annotations

from onlyonce.failpoints import passing
from onlyonce.model.stored_names import IS_CURRENT, VALID_TO
from onlyonce.sinks.mysql.mysql_upsert import REMEMBER, Arriving

ENDS = {VALID_TO: "datetime(6)", IS_CURRENT: "tinyint"}
"""The columns that the platform computes, and their types."""
OLD_CHANGES = "DROP TEMPORARY TABLE IF EXISTS oo_changes"
CHANGES = (
    "CREATE TEMPORARY TABLE oo_changes ENGINE = InnoDB SELECT {kept} FROM {target} WHERE ({keys}) IN (SELECT "
    "{keys} FROM {arriving})"
)
ENDED = "INSERT INTO oo_changes ({kept}) SELECT {kept} FROM {deleted} WHERE ({keys}) IN (SELECT {keys} FROM {arriving})"
FIND_ENDS = """
UPDATE {target} AS target JOIN (
    SELECT {identity}, LEAD(valid_from) OVER later AS valid_to, LEAD(1) OVER later IS NULL AS is_current
    FROM oo_changes WINDOW later AS (PARTITION BY {keys} ORDER BY {ordered})
) AS found ON {same_version}
SET target.valid_to = found.valid_to, target.is_current = found.is_current
WHERE NOT (target.valid_to <=> found.valid_to AND target.is_current <=> found.is_current)
"""


def write(arriving: Arriving) -> None:
    """Put the rows of a unit in their places."""
    arriving.merge()
    if arriving.work.deletes:
        arriving.run(REMEMBER)
    passing("postgres-unit-after-delete")
    arriving.run(OLD_CHANGES)
    arriving.run(CHANGES)
    if arriving.work.deletes:
        arriving.run(ENDED)
    arriving.run(FIND_ENDS, ordered=arriving.ordered("oo_changes"), same_version=arriving.same_version())
    arriving.run(OLD_CHANGES)
