"""Describe a pipeline in Airflow: the pages of its DAGs, and the forms of their runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from airflow.sdk import Param

from onlyonce.api import identity
from onlyonce.api.pipeline import Output, Pipeline, target
from onlyonce.core.durations import in_words
from onlyonce.core.windows import Fixed, Window, own


def pipeline_page(pipeline: Pipeline) -> str:
    """Return the DAG's documentation in Markdown, from the declaration alone."""
    silence = (
        f"when the source has been silent for {in_words(pipeline.idle_after)}"
        if pipeline.idle_after
        else "never because the source is silent"
    )
    return f"""\
Takes in the available input **exactly once**, then stops. With *Mode* continuous it keeps running, for new input.
Running it again, or clearing a run, changes nothing that is committed. The end of the task's log says what was
committed, by the commit log.

- **Source**: {_sources(pipeline)}
- **A record** is identified by {_words(pipeline.record_id) or _place(pipeline)}; it happened at `{pipeline.event_time}`
- **A re-delivery** {_again(pipeline)}
- **Windows** close as the event times of the data advance, by *Close all windows* in the form, and {silence}

{outputs_table(pipeline)}
"""


def _again(pipeline: Pipeline) -> str:
    if pipeline.by_position:
        return f"{'under another offset' if pipeline.source.is_topic else 'in another file'} is another record"
    return f"is recognised for {in_words(pipeline.dedup_horizon)} of running time, and dropped"


def outputs_table(pipeline: Pipeline) -> str:
    """Return the outputs as a Markdown table. The page of the backfill has it too."""
    rows = [_row(pipeline, output) for output in pipeline.outputs]
    return "\n".join(["| output | made by | windows | watermark delay | written to |", "|---|---|---|---|---|", *rows])


def pipeline_form(pipeline: Pipeline) -> dict[str, Param]:
    """Return the Params of a run; the same words as the options of `onlyonce run`."""
    most = None if pipeline.sources else pipeline.source.max_files_a_batch
    return {
        "mode": _optional(
            "once",
            "string",
            enum=["once", "continuous"],
            title="Mode",
            description="once: read the input that is available now, then stop. continuous: keep reading new input "
            "until `onlyonce stop`, in a driver that is started again if it fails. Meanwhile this run waits without "
            "a worker's slot.",
        ),
        "every": _optional(
            EVERY_SECONDS,
            "number",
            minimum=0,
            title="Poll interval (seconds)",
            description="For a continuous run: how long to wait before asking again for new input.",
        ),
        "close": _optional(
            False,
            "boolean",
            title="Close all windows",
            description="Check this if the input has ended: each window with data closes and is written now. A record "
            "that arrives later for such a window is late.",
        ),
        "bounded": _optional(
            False,
            "boolean",
            title="Bounded run",
            description="Read all input from the beginning, and write to targets of this run only. No record is late.",
        ),
        **(_files(most) if most else {}),
        "dry_run": _optional(
            False, "boolean", title="Dry run", description="Only log what would be read. Nothing is written."
        ),
    }


def _files(declared: int) -> dict[str, Param]:
    return {
        "max_files": Param(
            None, type=["null", "integer"], minimum=1, title="Files per batch",
            description=f"How many files one batch reads at most. If empty: {declared}, as declared.",
        ),
    }  # fmt: skip


def _sources(pipeline: Pipeline) -> str:
    return "; ".join(f"`{name}`: {_source(pipeline.of_source(name))}" for name in pipeline.sources) or _source(pipeline)


def _source(pipeline: Pipeline) -> str:
    name = f"{pipeline.name}/{pipeline.part.name}" if pipeline.part else pipeline.name
    return pipeline.source.described(f"`{pipeline.source.inbox or f'<ONLYONCE_HOME>/inbox/{name}'}`")


def _place(pipeline: Pipeline) -> str:
    if pipeline.source.is_table:
        return "its place: version and data file of the table, and the row in it"
    return (
        "its place: the partition and the offset"
        if pipeline.source.is_topic
        else "its place: the file and the byte at which it begins"
    )


def _row(pipeline: Pipeline, output: Output) -> str:
    root = pipeline.root_of(output)
    made_by = " and ".join(f"`{name}`" for name in output.functions) + (
        f" from `{output.from_output}`" if output.from_output else ""
    )
    made_by = f"a result of `{root.transform}`" if output.is_result else made_by
    made_by += f", {output.join.kind} join by {_words(output.join.on)}" if output.join else ""
    made_by += f", with state by {_words(output.stateful.keys)}" if output.stateful else ""
    watermark_delay = in_words(root.watermark_delay) if root.window else "never late"
    kind, _, place = target(pipeline, output).partition(":")
    sink = f"{kind.capitalize()} `{place.lstrip(':')}` ({output.sink.in_words})"
    return f"| `{output.name}` | {made_by} | {_windows(root.window)} | {watermark_delay} | {sink} |"


def _windows(window: Window | None) -> str:
    if window is None:
        return "none"
    window = own(window) if isinstance(window, Fixed) else window
    parts = [
        f"{name} {in_words(value)}" for name, value in vars(window).items() if isinstance(value, timedelta) and value
    ]
    return f"{identity.of(window)['kind']}: {', '.join(parts)}"


def _words(columns: tuple[str, ...]) -> str:
    return ", ".join(f"`{column}`" for column in columns)


EVERY_SECONDS = 5
WAIT_HOURS = 6


def _optional(
    default: object, kind: str, title: str, description: str, enum: Sequence[str] = (), **schema: object
) -> Param:
    """Return a Param that may be left empty. Airflow's form stars each other one as required, default or not."""
    if enum:
        schema |= {"enum": [*enum, None], "values_display": {"None": f"{default} (default)"}}
    return Param(default, type=["null", kind], title=title, description=description, **schema)


# The backfill.


# No "date-time": that takes no day of the windows' own zone.
_TIME: dict[str, object] = {
    "type": ["null", "string"],
    "pattern": r"^\s*\d{4}-\d{2}-\d{2}([T ][0-9:.]+(Z|[+-][0-9:]+)?)?\s*$",
}


def has_windows(pipeline: Pipeline) -> bool:
    """Return whether there is something to backfill."""
    return any(_windowed(pipeline, output) for output in pipeline.outputs)


def backfill_page(pipeline: Pipeline) -> str:
    """Return the DAG's documentation in Markdown, from the declaration alone."""
    return f"""\
Recomputes **closed windows** from the table `events`, late rows included, by the functions as they are now, and
replaces the old results. The stream may run meanwhile. The same backfill twice changes nothing that a reader can see.
Each recomputation is a row of `onlyonce.backfills`; `onlyonce.windows` has each window's generation.

- **A range**: *Trigger*, then *Backfill*: one run for each data interval. Several runs at once, runs backwards, and
  reprocessing completed runs are all safe.
- **Some windows**: *Trigger* a single run with *First window starts at* and *Windows start before*. The windows that
  **start** between these times are recomputed.
- **Late records**: *Trigger* a single run with *Late records only*: the windows with late records that are not in their
  result yet.
- **What would be done**: the same with *Dry run*.
- **Windows that are still open** belong to the stream. A run that meets some waits, without a worker's slot, and
  continues when the stream has closed them.

{outputs_table(pipeline)}
"""


def backfill_form(pipeline: Pipeline) -> dict[str, Param]:
    """Return the Params of a run; the same words as the options of `onlyonce backfill`."""
    outputs = [output.name for output in pipeline.outputs if _windowed(pipeline, output)]
    lookups = (
        {}
        if not any(output.lookups for output in pipeline.outputs)
        else {
            "lookups": _optional(
                "then",
                "string",
                enum=["then", "now"],
                title="Lookups",
                description="then: each window reads its lookup tables as they were when it was last written. now: "
                "it reads them as they are now.",
            )
        }
    )
    return {
        "window_start": Param(
            None,
            **_TIME,
            title="First window starts at",
            description="Recompute the windows that start at this time or later: 2013-01-31, or 2013-01-31T05:00Z. A "
            "time without a zone is in the time zone of the windows. Leave it empty if you backfill a date range.",
        ),
        "window_end": Param(
            None,
            **_TIME,
            title="Windows start before",
            description="Recompute only windows that start before this time, in the same forms. Leave it empty if you "
            "backfill a date range.",
        ),
        "late_only": _optional(
            False,
            "boolean",
            title="Late records only",
            description="Recompute only windows with late records that their result lacks. The two times above may "
            "be empty: then all such windows are recomputed. The stream writes the windows that are still open.",
        ),
        "output": Param(
            None,
            type=["null", "string"],
            enum=[None, *outputs],
            title="Output",
            description="Recompute only this output and the outputs made from it. If empty: all outputs with windows.",
        ),
        **lookups,
        "dry_run": _optional(
            False,
            "boolean",
            title="Dry run",
            description="Only log which windows would be recomputed and what each sink would do. Nothing is written.",
        ),
        "wait_hours": _optional(
            WAIT_HOURS,
            "number",
            minimum=0,
            title="Wait for open windows (hours)",
            description="How long to wait until the stream has closed the windows. With 0 the run fails immediately "
            "if one is still open.",
        ),
    }


def _windowed(pipeline: Pipeline, output: Output) -> bool:
    return pipeline.root_of(output).has_windows
