"""Show how far each stage is behind, with what its sources have that was never read: for lag, status and the doctor.

The log knows what was registered and committed. The sources themselves are asked for the rest (`sources.backlog`), so
unread input shows whether or not a driver runs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import datetime
from typing import Any

from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Pipeline
from onlyonce.console import for_json, plain
from onlyonce.core import backlog
from onlyonce.core.backlog import Backlog
from onlyonce.core.durations import roughly
from onlyonce.core.stuck import UnreadInput
from onlyonce.sources.backlog import Answer, Row, ask, ask_each

OF_BACKLOG = tuple(Answer("", None, datetime.max, Backlog()).row())
"""The columns of a stage that its source answers."""


def waiting(answers: Iterable[Answer], bound_seconds: float) -> list[UnreadInput]:
    """Return the sources with unread input for the doctor, and the sources of earlier runs that did not answer."""
    found = []
    for one in answers:
        told, now = one.backlog, one.asked_at
        since = told.oldest or one.committed_at
        age = max((now - since).total_seconds(), 0) if since else float("inf")
        if told.failed and one.committed_at is not None:
            found.append(UnreadInput(one.pipeline, one.stage, "", age, bound_seconds, told.why))
        elif told.waits:
            found.append(UnreadInput(one.pipeline, one.stage, told.amount(), age, bound_seconds))
    return found


def stored(rows: Iterable[Row], pipelines: Container[str], bound_seconds: float) -> list[UnreadInput]:
    """Return the sources with unread input by their stored answers, of pipelines whose declarations are not loaded.

    `rows`: of the query `backlog`. An answer that is not recent is left out (`not_looked_at`).
    """
    found = []
    for row in rows:
        if row["pipeline"] in pipelines or not row["is_current"]:
            continue
        told, age = Backlog(row["backlog_records"], row["backlog_bytes"]), row["waiting_seconds"]
        if not row["answered"]:
            found.append(UnreadInput(row["pipeline"], row["stage"], "", 0.0, bound_seconds, row["why_unknown"]))
        elif told.waits:
            waits = float("inf") if age is None else age
            found.append(UnreadInput(row["pipeline"], row["stage"], told.amount(), waits, bound_seconds))
    return found


def not_looked_at(names: Iterable[str], rows: Sequence[Row], pipelines: Container[str]) -> list[str]:
    """Return which pipelines of the log neither a declaration nor recent answers of all their sources are known of.

    `rows`: of the query `backlog`.
    """
    recent = {row["pipeline"] for row in rows} - {row["pipeline"] for row in rows if not row["is_current"]}
    return sorted({name for name in names if "@" not in name and name not in pipelines} - recent)


def with_backlog(
    stages: Sequence[Row], taken_in: Sequence[Mapping[str, Any]], pipelines: Mapping[str, Pipeline], not_loaded: str
) -> list[Row]:
    """Return the rows of the query `lag` with what the sources answer; also for pipelines that no run has read.

    `not_loaded`: why a pipeline is not among the declared ones, which is the answer of its sources.
    """
    rows, answers = list(stages), by_stage(ask(pipelines.values(), taken_in))
    empty = dict.fromkeys(OF_BACKLOG)
    columns = list(rows[0]) if rows else ["pipeline", "stage"]
    there = {(row["pipeline"], row["stage"]) for row in rows}
    rows += [
        dict.fromkeys(columns) | {"pipeline": name, "stage": stage}
        for name, stage in answers
        if (name, stage) not in there
    ]
    return [
        _with_age(
            {**empty, **row}
            | dict(answers.get((row["pipeline"], row["stage"])) or _undeclared(row, pipelines, not_loaded))
        )
        for row in sorted(rows, key=lambda row: (row["pipeline"], row["stage"] != "receive"))
    ]


def _with_age(row: Row) -> Row:
    """Return a stage whose lag is the age of its oldest waiting input, registered or not."""
    asked, oldest = row.get("asked_at"), row.get("oldest_unread_at")
    if not asked or not oldest:
        return row
    age = max((asked - oldest).total_seconds(), 0.0)
    return row | {"system_lag_seconds": max(float(row.get("system_lag_seconds") or 0), round(age, 1))}


def in_words(stages: Sequence[Row], at_work: Collection[str]) -> list[str]:
    """Return the unread input of each pipeline in words, and what to do if no driver of the pipeline is running.

    `stages`: the rows that `with_backlog` returns. `at_work`: the pipelines with a driver.
    """
    lines = []
    names = {row["pipeline"] for row in stages if row.get("asked_at")}
    if len(names) == 1 and not any(map(_waits, stages)):
        lines.append(f"nothing waits for {min(names)}: no input is unread, and no stage has rows to read")
    for row in stages:
        if row["stage"].endswith(f"/{DELIVER}") and row["backlog_records"]:
            output = row["stage"].removesuffix(f"/{DELIVER}")
            lines.append(f"rows that wait in the outbox of {row['pipeline']}: {row['backlog_records']:,} of {output}")
            lines.append(f"  next: onlyonce deliver {row['pipeline']}")
        if row["stage"] != "receive" or not row["asked_at"]:
            continue
        name, oldest = row["pipeline"], row["oldest_unread_at"]
        found = Backlog(row["backlog_records"], row["backlog_bytes"], oldest, row["backlog_detail"] or {})
        if _is_not_known(row):
            lines.append(f"input waiting for {name}: not known: {row['backlog_unknown']}")
        elif found.waits:
            waits = roughly(max((row["asked_at"] - oldest).total_seconds(), 0)) if oldest else ""
            since = f", the oldest since {plain(oldest)} ({waits})" if oldest else ""
            lines.append(f"input waiting for {name}: {found.amount()}{since}")
            if name not in at_work:
                lines.append(f"  next: onlyonce run {name}, or onlyonce resume {name} if its schedule is held")
    return lines


def _waits(row: Row) -> bool:
    """Return whether a stage has input or rows that wait, or may have some that is not known."""
    waiting = ("backlog_records", "backlog_bytes", "batches_waiting", "records_waiting", "batches_begun")
    return bool(row.get("backlog_unknown")) or any(row.get(name) for name in waiting)


DELIVER = "deliver"
"""The end of the name of the stage that sends an output's rows."""


def _is_not_known(row: Row) -> bool:
    return row["stage"] == "receive" and bool(row.get("backlog_unknown")) and not row.get("source_answered")


OF_MANY = ("pipeline", "stage", "unread", "catch_up_seconds", "system_lag_seconds")
"""The columns that are read first, if several pipelines are shown."""


def for_people(stages: Sequence[Row]) -> list[Row]:
    """Return the rows with unread input first, and seconds as lengths of time that people read.

    The rows of several pipelines have the first columns only.
    """
    several = len({row["pipeline"] for row in stages}) > 1
    # Why a source is not known stands above the rows of one pipeline (`in_words`).
    of_one = [row | {"backlog_unknown": None} if _is_not_known(row) else row for row in stages]
    shown = [row | {"unread": _unread_of_stage(row)} for row in stages] if several else of_one
    return [
        {
            name.removesuffix("_seconds"): roughly(float(row[name])) if _is_length(name, row[name]) else row[name]
            for name in (OF_MANY if several else sorted(row, key=_order))
        }
        for row in shown
    ]


def _unread_of_stage(row: Row) -> str | None:
    records = row.get("backlog_records")
    return _in_words(row) or (None if records is None else f"{records:,} records" if records else "nothing")


def _order(column: str) -> tuple[bool, bool]:
    return column not in ("pipeline", "stage"), column not in OF_BACKLOG


def _is_length(column: str, value: Any) -> bool:
    return column.endswith("_seconds") and value is not None


def of_pipelines(
    runs: Sequence[Row], taken_in: Sequence[Mapping[str, Any]], pipelines: Mapping[str, Pipeline], not_loaded: str
) -> list[Row]:
    """Return the rows of the query `status` with the unread input of each pipeline, including one that has not run.

    `not_loaded`: as `with_backlog` takes it.
    """
    answers = by_stage(ask(pipelines.values(), taken_in))
    shown = (
        "backlog_bytes", "backlog_records", "oldest_unread_at", "backlog_detail", "source_answered", "backlog_unknown"
    )  # fmt: skip
    there = {row["pipeline"] for row in runs}
    columns = list(runs[0]) if runs else ["pipeline", "state"]
    new = [dict.fromkeys(columns) | {"pipeline": name, "state": "new"} for name in pipelines if name not in there]
    unknown = dict.fromkeys(shown)
    found = []
    for row in [*runs, *new]:
        answer = answers.get((row["pipeline"], "receive"))
        of_source = {name: answer[name] for name in shown} if answer else _undeclared(row, pipelines, not_loaded)
        found.append({**row, **unknown, **of_source})
    return sorted(found, key=lambda row: str(row["pipeline"]))


def status_for_people(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """Return the rows of `of_pipelines` with the unread input in words, and why that of some is not known.

    The number of invalid records is left out if no pipeline has any.
    """
    left_out = (*OF_BACKLOG, "batches", "begun", *(() if any(row.get("invalid") for row in rows) else ("invalid",)))
    shown = [
        {name: value for name, value in row.items() if name not in left_out} | {"unread": _in_words(row)}
        for row in rows
    ]
    return shown, unknown_in_words(rows)


MOST_NAMED = 3


def unknown_in_words(rows: Iterable[Row]) -> list[str]:
    """Return a sentence for each reason why the unread input of pipelines is not known."""
    unknown: dict[str, list[str]] = {}
    for row in rows:
        if row["backlog_unknown"]:
            unknown.setdefault(row["backlog_unknown"], []).append(row["pipeline"])
    return [
        f"the unread input of {', '.join(names[:MOST_NAMED])}"
        f"{f' and {len(names) - MOST_NAMED} more' if len(names) > MOST_NAMED else ''} is not known: {why}"
        for why, names in unknown.items()
    ]


def _in_words(row: Row) -> str | None:
    """Return what waits for a pipeline, as `lag` says it; None for a bounded run, whose source is not asked."""
    if row["backlog_unknown"] or row["source_answered"] is False:
        return "not known"
    if row["source_answered"] is None:
        return None
    found = Backlog(row["backlog_records"], row["backlog_bytes"], row["oldest_unread_at"], row["backlog_detail"] or {})
    return found.amount() if found.waits else "nothing"


def print_each(pipeline: str, taken_in: Sequence[Mapping[str, Any]]) -> None:
    """Print the rows of a pipeline's sources as one line of JSON, and a new line each time another source has answered.

    Print nothing if no declaration of the pipeline is loaded. What a declaration or a reader prints goes to stderr.
    """
    out = sys.stdout
    with redirect_stdout(sys.stderr):
        declared = [one for name, one in declarations.load().items() if name == pipeline]
        for answers in ask_each(declared, taken_in) if declared else ():
            found = sorted(by_stage(answers).items(), key=lambda one: one[0][1] != "receive")
            rows = [{"stage": stage, **row} for (_, stage), row in found]
            print(json.dumps(rows, default=for_json), file=out, flush=True)


def by_stage(answers: Iterable[Answer]) -> dict[tuple[str, str], Row]:
    """Return the columns of each stage that reads a source, and of `receive` as a whole if it has several."""
    found: dict[tuple[str, str], Row] = {}
    several: dict[str, list[Answer]] = {}
    for one in answers:
        found[one.pipeline, one.stage] = one.row()
        if one.source:
            several.setdefault(one.pipeline, []).append(one)
    for name, parts in several.items():
        whole = backlog.together(_named(part) for part in parts)
        first = min(part.asked_at for part in parts)
        found[name, "receive"] = Answer(name, None, first, whole, parts[0].records_per_second).row()
    return found


def _named(part: Answer) -> Backlog:
    why = part.backlog.why
    return replace(part.backlog, why=f"{part.source}: {why}") if why else part.backlog


def _undeclared(row: Row, pipelines: Mapping[str, Pipeline], not_loaded: str) -> Mapping[str, Any]:
    reads = row.get("stage", "receive") == "receive" and "@" not in row["pipeline"]
    return {"backlog_unknown": not_loaded} if reads and row["pipeline"] not in pipelines else {}
