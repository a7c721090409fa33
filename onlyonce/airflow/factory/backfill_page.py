"""The texts of a backfill in Airflow: the page of its DAG, and the form of a run."""

from __future__ import annotations

from airflow.sdk import Param

from onlyonce.airflow.factory.pipeline_page import outputs_table
from onlyonce.declare.pipeline import Output, Pipeline

# No "date-time": that takes no day of the windows' own zone.
_TIME: dict[str, object] = {
    "type": ["null", "string"],
    "pattern": r"^\s*\d{4}-\d{2}-\d{2}([T ][0-9:.]+(Z|[+-][0-9:]+)?)?\s*$",
}


def has_windows(pipeline: Pipeline) -> bool:
    """Whether there is something to backfill."""
    return any(_windowed(pipeline, output) for output in pipeline.outputs)


def page(pipeline: Pipeline) -> str:
    """The DAG's documentation in Markdown, from the declaration alone."""
    return f"""\
Recomputes **closed windows** from the table `events`, late rows included, by the functions as they are now, and
replaces the old results. The stream may go on meanwhile. The same backfill twice changes nothing that a reader can see.
Each recomputation is a row of `onlyonce.backfills`; `onlyonce.windows` has each window's generation.

- **A range**: *Trigger*, then *Backfill*: one run for each data interval. Several runs at once, runs backwards, and
  reprocessing completed runs are all safe.
- **Some windows**: *Trigger* a single run with *from* and *to*. The windows that **start** between them are recomputed.
- **Late records**: *Trigger* a single run with *late only*: the windows with late records that are not in their result
  yet.
- **What would be done**: the same with *dry run*.
- **Windows that are still open** belong to the stream. A run that meets some waits, without a worker's slot, and goes
  on when the stream has closed them.

{outputs_table(pipeline)}
"""


def form(pipeline: Pipeline) -> dict[str, Param]:
    """The Params of a run; the same words as the options of `onlyonce backfill`."""
    outputs = [output.name for output in pipeline.outputs if _windowed(pipeline, output)]
    lookups = (
        {}
        if not any(output.lookups for output in pipeline.outputs)
        else {
            "lookups": Param(
                "then",
                type="string",
                enum=["then", "now"],
                title="Lookups",
                description="then: each window sees the versions of its lookups that it saw when it was last "
                "written; now: the newest ones.",
            )
        }
    )
    return {
        "window_start": Param(
            None,
            **_TIME,
            title="From",
            description="Windows that start at this time or later: 2013-01-31, or 2013-01-31T05:00Z. A time "
            "without a zone is in the zone of the windows. "
            "Leave it empty in a backfill of data intervals.",
        ),
        "window_end": Param(
            None,
            **_TIME,
            title="To",
            description="And before this time. Leave it empty in a backfill of data intervals.",
        ),
        "late_only": Param(
            False,
            type="boolean",
            title="Late records only",
            description="Only windows with late records that are not in their result yet; without From and To all "
            "of them. Windows that are still open "
            "are left to the stream.",
        ),
        "output": Param(
            None,
            type=["null", "string"],
            enum=[None, *outputs],
            title="Output",
            description="Only this output, with those made from it; empty: all that have windows.",
        ),
        **lookups,
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description="Only log which windows would be recomputed, and what each sink would do.",
        ),
        "wait_hours": Param(
            6,
            type="number",
            minimum=0,
            title="Wait (hours)",
            description="How long to wait for windows that are still open; 0: fail at once.",
        ),
    }


def _windowed(pipeline: Pipeline, output: Output) -> bool:
    return pipeline.root_of(output).has_windows
