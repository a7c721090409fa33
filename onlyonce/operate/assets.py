"""Return what runs have committed to each output's table, for Airflow's asset events: batch, rows, Delta version.

The log is read after a run that has ended well. Airflow keeps no event of a task that fails, so the next good end also
reports what failed runs of the DAG have committed: an output that fails does not stop what follows the others. A task
that runs again repeats the events of its run, so a consumer separates them by `batch`.
"""

from __future__ import annotations

import json
from typing import Any

from deltalake.exceptions import DeltaError

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Pipeline, target
from onlyonce.commitlog.health import Views
from onlyonce.core import stored_names
from onlyonce.core.locations import Location
from onlyonce.core.ownership import Place
from onlyonce.database.connect import Database
from onlyonce.tables import opening

RECENT = 100
"""How many of a table's last commits are searched for a batch."""


def committed(pipeline: str, dag_id: str, *run_ids: str) -> list[dict[str, Any]]:
    """Return one entry, of JSON values, for each output that these runs have written rows to. Raise Retryable.

    Runs of the DAG that have not ended well belong to them, with what they have committed since the last good end.
    Bounded runs have targets of their own and no entries. The values of an entry:

    run_id          the first of these runs
    batch           the output's last batch with rows
    batches, rows   of all these runs; `rows` is None if the log counts none, as for Delta at least once
    delta_version   of the last batch; None if it is not among the table's RECENT last commits
    """
    database = Database(settings.database_url(), "onlyonce-assets")
    found = Views(database).rows("run_outputs", run_ids=list(run_ids), dag_id=dag_id, pipeline=pipeline)
    declared = declarations.load().get(pipeline)
    return [_told(declared, row, run_ids[0]) for row in found if row["instance"] == pipeline]


def _told(declared: Pipeline | None, row: dict[str, Any], run_id: str) -> dict[str, Any]:
    path = _table(declared, row["output"])
    return {
        "output": row["output"],
        "run_id": run_id,
        "batch": row["batch"],
        "batches": row["batches"],
        "rows": row["rows"],
        "delta_version": _version(path, row["batch"]) if path else None,
    }


def _table(declared: Pipeline | None, name: str) -> Location | None:
    output = next((o for o in declared.outputs if o.name == name), None) if declared else None
    return output.sink.delta_table(Place(target(declared, output))) if declared and output else None


def _version(path: Location, batch: str) -> int | None:
    """Return the version of the table that holds a batch, by the note in its commit."""
    try:
        history = opening.table(path).history(RECENT)
    except DeltaError:
        return None
    for entry in history:
        try:
            unit = json.loads(entry.get("userMetadata") or "{}").get(stored_names.NOTE_UNIT, "")
        except (ValueError, AttributeError):
            continue  # a commit by another program
        if str(unit).startswith(f"{batch}/"):
            return int(entry["version"])
    return None
