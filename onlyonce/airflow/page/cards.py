"""Makes what the page shows of a pipeline from the rows of the queries in `sql/statements/page.sql`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from onlyonce.airflow.page import charts
from onlyonce.airflow.page.charts import Chart

Row = dict[str, Any]


@dataclass(frozen=True)
class Card:
    """One pipeline, or one bounded run of it."""

    of: Row
    stages: list[Row]
    broken: list[Row]
    charts: list[tuple[str, list[Chart]]]
    ids: int
    bytes: int
    chunks: int
    kept_ids: Chart | None
    false_positives: int
    judged_new: int
    """Look-ups of the last batches whose id was not in the chunk: what the filters can be wrong about."""

    @property
    def verdict(self) -> str:
        """broken, conserved, or nothing while no batch is committed."""
        if self.broken or self.of["unbalanced"]:
            return "broken"
        return "conserved" if self.of["batches"] else "nothing"

    @property
    def false_positive_rate(self) -> str:
        """How often a filter said "maybe" of an id that was not there, as counted."""
        if not self.judged_new:
            return "–"
        if not self.false_positives:
            return f"none of {charts.number(self.judged_new)}"
        return f"1 in {charts.number(self.judged_new / self.false_positives)}"

    @property
    def slowest(self) -> Row | None:
        """The stage whose input waits the longest; None when nothing waits."""
        return next((stage for stage in self.stages if stage["slowest"]), None)


def cards(
    pipelines: Sequence[Row], recent: Sequence[Row], broken: Sequence[Row], lag: Sequence[Row], catalog: Sequence[Row]
) -> list[Card]:
    """One card for each row of `pipelines`, in that order, with what the other queries say of it."""
    return [
        _card(
            of, *([row for row in rows if row["instance"] == of["instance"]] for rows in (recent, broken, lag, catalog))
        )
        for of in pipelines
    ]


def late_by_window(rows: Sequence[Row]) -> list[Chart]:
    """The rows of `late_windows`, which are newest first, as bars from the oldest on."""
    if not rows:
        return []
    points = [(charts.span(row["window_start"], row["window_end"]), row["late"]) for row in reversed(rows)]
    return [charts.chart("late", "late", points)]


def _card(of: Row, recent: list[Row], broken: list[Row], lag: list[Row], catalog: list[Row]) -> Card:
    wrong, spared = (sum(row[column] or 0 for row in recent) for column in ("false_positives", "lookups_spared"))
    by_stage = [(stage, list(rows)) for stage, rows in groupby(recent, lambda row: row["stage"])]
    return Card(
        of,
        lag,
        broken,
        [(stage, _charts(stage, rows)) for stage, rows in by_stage],
        ids=sum(row["ids"] for row in catalog),
        bytes=sum(row["bytes"] for row in catalog),
        chunks=sum(row["chunks"] for row in catalog),
        kept_ids=charts.chart("ids", "ids", [(charts.time(c["bucket_start"]), c["ids"]) for c in catalog])
        if catalog
        else None,
        false_positives=wrong,
        judged_new=wrong + spared,
    )


def _charts(stage: str, rows: list[Row]) -> list[Chart]:
    times = [
        charts.by_batch("system lag at the commit", "lag", rows, "took", shown=charts.age),
        charts.by_batch("time to commit", "took", rows, shown=charts.age),
    ]
    if stage != "receive":
        known = [row | {"rejected": row["rejected"] or 0} for row in rows]
        rejects = [charts.by_batch("rejected", "rejected", known)] if any(row["rejected"] for row in known) else []
        return [charts.by_batch("in time", "in_time", rows), charts.by_batch("late", "late", rows), *rejects, *times]
    rare = [column for column in ("invalid", "remnant", "false_positives") if any(row[column] for row in rows)]
    return [charts.by_batch(column.replace("_", " "), column, rows) for column in ("kept", "duplicate", *rare)] + times
