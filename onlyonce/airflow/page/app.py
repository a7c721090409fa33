"""Serve the page "onlyonce": a FastAPI app that Airflow's API server mounts.

Every route shows a user of Airflow what `read.Sight` permits. Each answer is one HTML page without scripts, for a frame
of Airflow's UI or a window of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs, quote, urlencode

import jinja2
from airflow.api_fastapi.core_api.security import GetUserDep, get_user
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from onlyonce.airflow.page import find, read, unread
from onlyonce.airflow.page.read import Ask, log
from onlyonce.catalog.filters import FALSE_POSITIVES
from onlyonce.core import backlog
from onlyonce.core.errors import OnlyonceError, Refused, visible

HEIGHT = 36
_STEP, _GAP = 10, 2
# In units of the drawing, which the page stretches to its width. Fewer bars than this would be too wide.
_LEAST = 60


@dataclass(frozen=True)
class Bar:
    """One bar, from the bottom up, with the text that shows when a person points at it."""

    x: int
    y: float
    height: float
    title: str


@dataclass(frozen=True)
class Chart:
    """One row of bars with its own scale, so that few duplicates next to many kept records can be seen."""

    name: str
    kind: str
    bars: tuple[Bar, ...]
    largest: str
    width: int
    bar_width: int = _STEP - _GAP
    height: int = HEIGHT


def chart(name: str, kind: str, points: Iterable[tuple[str, float | None]], shown: Any = None) -> Chart:
    """Return the bars of some (title, value), oldest first; a missing value has no bar.

    `kind` is the colour's name.
    """
    shown = shown or number
    values = [(title, max(value or 0, 0)) for title, value in points]
    top = max((value for _, value in values), default=0)
    empty = max(_LEAST - len(values), 0)
    bars = tuple(
        Bar((empty + at) * _STEP, round(HEIGHT - tall, 2), round(tall, 2), f"{title}: {shown(value)}")
        for at, (title, value) in enumerate(values)
        if (tall := _tall(value, top))
    )
    return Chart(name, kind, bars, shown(top), (empty + len(values)) * _STEP - _GAP)


def by_batch(name: str, column: str, rows: Iterable[Mapping[str, Any]], kind: str = "", shown: Any = None) -> Chart:
    """Return a chart of a column of the query `recent`, with one bar for each batch."""
    points = [(f"batch {row['batch']}, {time(row['committed_at'])}", row[column]) for row in rows]
    return chart(name, kind or column, points, shown)


def number(value: float | None) -> str:
    """Return a count with its thousands apart; a dash for an unknown count."""
    return "–" if value is None else f"{value:,.0f}"


def size(value: float | None) -> str:
    """Return a number of bytes, for people."""
    if value is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def time(value: datetime | None) -> str:
    """Return an instant, in UTC, to the second."""
    return "–" if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def span(start: datetime | None, end: datetime | None) -> str:
    """Return a window: its start, and the part of its end that differs."""
    if start is None or end is None:
        return time(start)
    first, last = time(start), time(end)
    return f"{first} – {last[11:]}" if first[:10] == last[:10] else f"{first} – {last}"


def age(seconds: float | None) -> str:
    """Return a duration in its two largest units."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds * 1000:.0f} ms" if 0 < seconds < 1 else f"{seconds:.0f} s"
    whole = round(seconds)
    for large, small, a, b in ((86400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= large:
            rest = whole % large // small
            return f"{whole // large} {a}" + (f" {rest} {b}" if rest else "")
    raise AssertionError("a minute or more has one of these units")


def _tall(value: float, top: float) -> float:
    # Every value must be visible, however small it is next to the largest.
    return max(value / top * HEIGHT, 1.5) if value else 0


# Cards: what the page shows of a pipeline, from the rows of the queries in `sql/statements/page.sql`. Pure.


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
    """Look-ups of the last batches whose id was not in the chunk. Only for these can a filter be wrong."""

    @property
    def verdict(self) -> str:
        """Return "broken", "conserved", or "nothing" while no batch is committed."""
        if self.broken or self.of["unbalanced"]:
            return "broken"
        return "conserved" if self.of["batches"] else "nothing"

    @property
    def false_positive_rate(self) -> str:
        """Return how often a filter answered "maybe" for an id that was not in its chunk, as counted."""
        if not self.judged_new:
            return "none yet"
        if not self.false_positives:
            return f"none of {number(self.judged_new)}"
        return f"1 in {number(self.judged_new / self.false_positives)}"

    @property
    def slowest(self) -> Row | None:
        """Return the stage whose input waits the longest; None if nothing waits."""
        return next((stage for stage in self.stages if stage["slowest"]), None)


def cards(
    pipelines: Sequence[Row], recent: Sequence[Row], broken: Sequence[Row], lag: Sequence[Row], catalog: Sequence[Row]
) -> list[Card]:
    """Return one card for each row of `pipelines`, in that order, with the rows that the other queries have of it."""
    return [
        _card(
            of, *([row for row in rows if row["instance"] == of["instance"]] for rows in (recent, broken, lag, catalog))
        )
        for of in pipelines
    ]


def late_by_window(rows: Sequence[Row]) -> list[Chart]:
    """Return the rows of `late_windows`, which are newest first, as bars from the oldest on."""
    if not rows:
        return []
    points = [(span(row["window_start"], row["window_end"]), row["late"]) for row in reversed(rows)]
    return [chart("late", "late", points)]


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
        kept_ids=chart("ids", "ids", [(time(c["bucket_start"]), c["ids"]) for c in catalog]) if catalog else None,
        false_positives=wrong,
        judged_new=wrong + spared,
    )


def _charts(stage: str, rows: list[Row]) -> list[Chart]:
    times = [
        by_batch("arrival to commit", "lag", rows, "took", shown=age),
        by_batch("duration of the batch", "took", rows, shown=age),
    ]
    if stage != "receive":
        known = [row | {"rejected": row["rejected"] or 0} for row in rows]
        rejects = [by_batch("rejected", "rejected", known)] if any(row["rejected"] for row in known) else []
        return [by_batch("in time", "in_time", rows), by_batch("late", "late", rows), *rejects, *times]
    rare = [column for column in ("invalid", "expired", "false_positives") if any(row[column] for row in rows)]
    names = {"false_positives": "Bloom filter false positives"}
    return [by_batch(names.get(column, column), column, rows) for column in ("kept", "duplicate", *rare)] + times


# Pages of a long list. A page begins after the last row of the page before, and not at a row number. So no row is shown
# twice while rows are added. Pure.


ROWS = 50
_BETWEEN = "~"
# Separates values. No incarnation, sink or time contains it.
_FIRST = datetime.min.replace(tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Order:
    """The columns that order a list, the kind of each, and the position before its first row."""

    columns: tuple[str, ...]
    kinds: tuple[Callable[[str], Any], ...]
    first: tuple[Any, ...]

    def place(self, text: str | None) -> tuple[Any, ...]:
        """Return the values after which a page begins. Raise Refused for a string that is not a position in this
        list."""
        if not text:
            return self.first
        parts = text.split(_BETWEEN)
        try:
            return tuple(kind(part) for kind, part in zip(self.kinds, parts, strict=True))
        except (ValueError, OverflowError) as error:
            raise Refused(f"{text!r} is not a place in this list", hint="go back to its first page") from error


@dataclass(frozen=True)
class Page:
    """Some rows of a list, and the string that names the position after them; None if they are the last."""

    rows: list[dict[str, Any]]
    next: str | None


def page(rows: Sequence[dict[str, Any]], order: Order, size: int = ROWS) -> Page:
    """Return the first `size` of up to `size + 1` rows: the additional row shows that there are more."""
    shown = list(rows[:size])
    return Page(shown, _text(shown[-1], order) if len(rows) > size else None)


def instant(text: str) -> datetime:
    """Return a time with its zone, in UTC: PostgreSQL does not have all zones that Python has.

    Raise ValueError or OverflowError for any other string.
    """
    value = datetime.fromisoformat(text)
    if value.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return value.astimezone(UTC)


BATCHES = Order(("batch",), (int,), (2**62,))
WINDOWS = Order(("window_start", "window_end", "generation"), (instant, instant, int), (_LATEST, _LATEST, 0))
LATE = Order(("window_start", "window_end"), (instant, instant), (_LATEST, _LATEST))
BACKFILLS = Order(("begun_at", "incarnation", "batch"), (instant, str, int), (_LATEST, "", 0))
FILES = Order(("output", "since", "pane", "shard"), (str, instant, int, int), ("", _FIRST, -1, -1))
COMMITS = Order(("committed_at", "unique_id"), (instant, str), (_LATEST, ""))
UNITS = Order(("sink", "partition"), (str, int), ("", -1))


def _text(row: Mapping[str, Any], order: Order) -> str:
    values = [row[column] for column in order.columns]
    return _BETWEEN.join(v.isoformat() if isinstance(v, datetime) else str(v) for v in values)


# The routes.


FEW = 5
"""How many backfills and files the page of a pipeline has; a link leads to all."""
REASONS = 100_000
"""How many rejected records are searched for their reasons."""
RECENT = 60
"""How many batches of each stage the charts show."""
COMPARED = 100
"""How many batches of each stage are compared with their units when the page is loaded.

The DAG `onlyonce_audit` compares all.
"""

# The API's own documentation would be open to every user, and is of no use here.
app = FastAPI(
    dependencies=[Depends(get_user)],
    docs_url=None,
    redoc_url=None,
    openapi_url=None,
)

_templates = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    # A macro's result is HTML already, made of values that were escaped.
    finalize=lambda value: visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value,
)
_templates.filters.update(number=number, size=size, time=time, age=age)
_templates.globals.update(
    span=span, recent=RECENT, compared=COMPARED, most=REASONS, one_in=round(1 / FALSE_POSITIVES), few=FEW
)
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-src 'self'; "
    "frame-ancestors 'self'; base-uri 'none'",
    "Cache-Control": "no-store",
}

Text = Annotated[str, Query(max_length=500)]
Place = Annotated[str | None, Query(max_length=500)]
MOST_SEARCHED = 4_000
"""Bytes of a search's body."""


async def _searched(request: Request) -> str:
    body = b""
    async for part in request.stream():
        if len(body := body + part) > MOST_SEARCHED:
            raise HTTPException(413, f"a search has at most {MOST_SEARCHED} bytes")
    return parse_qs(body.decode(errors="replace")).get("q", [""])[0]


@app.get("/")
def overview(request: Request, user: GetUserDep) -> HTMLResponse:
    """Show what is stuck, by the doctor's last check; then every pipeline and bounded run."""
    with log(request, user) as ask:
        found, looked = _cards(ask, None), ask("findings")
    return _page(
        request, "overview.html", cards=found, looked=looked, findings=[row for row in looked if row["finding"]]
    )


@app.get("/pipelines/{instance}")
def pipeline(request: Request, user: GetUserDep, instance: str) -> HTMLResponse:
    """Show one pipeline: its numbers, its charts, and the first page of each of its lists."""
    with log(request, user) as ask:
        [card] = _cards(ask, instance) or _nothing(f"no pipeline {instance} has run, or none that you may see")
        incarnations = ask("incarnations", instance=instance)
        outputs = _outputs(incarnations)
        late = {
            o: ask("late_windows", instance=instance, output=o, n=RECENT, **_at(LATE, "start", "end")) for o in outputs
        }
        backfills = ask("backfills", instance=instance, n=FEW, **_at(BACKFILLS, "begun_at", "incarnation", "batch"))
        files = ask("waiting_files", instance=instance, n=FEW, **_at(FILES, *FILES.columns))
        parts = _parts(ask, instance, rejects=bool(card.of["rejected"]))
        withheld = None if ask.sees_records(instance) else read.NOT_PERMITTED
    late_charts = {output: late_by_window(rows) for output, rows in late.items()}
    return _page(
        request,
        "pipeline.html",
        instance=instance,
        card=card,
        incarnations=incarnations,
        outputs=outputs,
        late=late_charts,
        backfills=backfills,
        files=files,
        withheld=withheld,
        **parts,
    )


@app.get("/pipelines/{instance}/unread")
def unread_input(request: Request, user: GetUserDep, instance: str) -> HTMLResponse:
    """Show what the sources of a pipeline have that no batch has read, asked now: the frame of the pipeline's page."""
    with log(request, user) as ask:
        stored = ask("lag", instance=instance) or _nothing(f"no pipeline {instance} has run, or none that you may see")
    # No snapshot of the log is held while the sources are asked. A bounded run does not read the stream's input.
    asked = unread.Asked([]) if "@" in instance else unread.ASKER.ask(instance, read.reader_url())
    again = backlog.ANSWER_SECONDS if asked.goes_on else None
    return _page(request, "unread.html", instance=instance, rows=unread.shown(stored, asked), again=again)


@app.get("/pipelines/{instance}/batches")
def batches(request: Request, user: GetUserDep, instance: str, incarnation: Text, before: Place = None) -> HTMLResponse:
    """Show the batches of one lifetime of one query, newest first."""
    if not incarnation.startswith(f"{instance}/"):
        _nothing(f"{incarnation} is not an incarnation of {instance}")
    with log(request, user) as ask:
        rows = ask("batches", incarnation=incarnation, n=ROWS + 1, **_at(BATCHES, "before", text=before))
    shown = page(rows, BATCHES)
    return _page(
        request,
        "batches.html",
        instance=instance,
        incarnation=incarnation,
        page=shown,
        receive="/receive/" in incarnation,
    )


@app.get("/pipelines/{instance}/windows")
def windows(request: Request, user: GetUserDep, instance: str, output: Text, before: Place = None) -> HTMLResponse:
    """Show the windows of an output with all their generations, newest first."""
    at = _at(WINDOWS, "start", "end", "generation", text=before)
    with log(request, user) as ask:
        rows = ask("windows", instance=instance, output=output, n=ROWS + 1, **at)
    return _page(request, "windows.html", instance=instance, output=output, page=page(rows, WINDOWS))


@app.get("/pipelines/{instance}/late")
def late(request: Request, user: GetUserDep, instance: str, output: Text, before: Place = None) -> HTMLResponse:
    """Show the windows of an output that have late records, newest first; on the first page the records."""
    with log(request, user) as ask:
        rows = ask(
            "late_windows", instance=instance, output=output, n=ROWS + 1, **_at(LATE, "start", "end", text=before)
        )
        records = find.LATE_NOT_PERMITTED if rows and before is None else None
        permitted = ask.sees_records(instance)
    # No snapshot of the log is held while the table is read.
    if records and permitted:
        records = find.late_records_of(rows[0]["pipeline"], instance, output)
    shown = page(rows, LATE)
    return _page(request, "late.html", instance=instance, output=output, page=shown, records=records)


@app.get("/pipelines/{instance}/files")
def files(request: Request, user: GetUserDep, instance: str, after: Place = None) -> HTMLResponse:
    """Show the files of a pipeline that have no final name yet."""
    with log(request, user) as ask:
        rows = ask("waiting_files", instance=instance, n=ROWS + 1, **_at(FILES, *FILES.columns, text=after))
    return _page(request, "files.html", instance=instance, page=page(rows, FILES))


@app.get("/pipelines/{instance}/backfills")
def backfills(request: Request, user: GetUserDep, instance: str, before: Place = None) -> HTMLResponse:
    """Show the backfills of a pipeline, newest first."""
    at = _at(BACKFILLS, "begun_at", "incarnation", "batch", text=before)
    with log(request, user) as ask:
        rows = ask("backfills", instance=instance, n=ROWS + 1, **at)
    return _page(request, "backfills.html", instance=instance, page=page(rows, BACKFILLS))


@app.get("/batches")
def batch(
    request: Request,
    user: GetUserDep,
    incarnation: Text,
    batch: Annotated[int, Query(ge=0, lt=2**62)],
    after: Place = None,
) -> HTMLResponse:
    """Show one batch or backfill, and its units."""
    at = _at(UNITS, "sink", "partition", text=after)
    with log(request, user) as ask:
        [of] = ask("batch", incarnation=incarnation, batch=batch) or _nothing(f"no batch {incarnation}/{batch}")
        units = ask("units_of_batch", incarnation=incarnation, batch=batch, n=ROWS + 1, **at)
    return _page(request, "batch.html", of=of, page=page(units, UNITS))


@app.get("/runs")
def run(request: Request, user: GetUserDep, dag_id: Text, run_id: Text, before: Place = None) -> HTMLResponse:
    """Show what a DAG run committed: the tab on its page in Airflow.

    Runs of two DAGs may have one id; the log has the pipelines that each run has driven.
    """
    with log(request, user) as ask:
        if not ask.may(dag_id, "GET"):
            raise HTTPException(403, f"no permission to read runs of {dag_id}")
        pipelines = [row["pipeline"] for row in ask("pipelines_of_run", dag_id=dag_id, run_id=run_id)]
        known = {"run_id": run_id, "pipelines": pipelines}
        sums = ask("run_sums", **known) if pipelines else None
        at = _at(COMMITS, "committed_at", "unique_id", text=before)
        rows = ask("commits_of_run", n=ROWS + 1, **known, **at) if pipelines else []
    return _page(request, "run.html", dag_id=dag_id, run_id=run_id, sums=sums, page=page(rows, COMMITS))


@app.get("/search")
def search_form(request: Request, user: GetUserDep, run_id: Text = "") -> HTMLResponse:
    """Show the form of a search, or the batches of a run.

    An address never contains a value of a record: it is logged.
    """
    with log(request, user) as ask:
        found = find.batches_of_run(ask, run_id) if run_id else None
    return _page(request, "search.html", q=run_id, found=found)


@app.post("/search")
def what_became_of(request: Request, user: GetUserDep, q: Annotated[str, Depends(_searched)]) -> HTMLResponse:
    """Show what became of a record, a unit, a batch or a run."""
    with log(request, user) as ask:
        found = find.find(ask, q) if q.strip() else None
    return _page(request, "search.html", q=q, found=found)


@app.exception_handler(OnlyonceError)
def refused(request: Request, error: OnlyonceError) -> HTMLResponse:
    """Show an error of the platform in three lines: what happened, what it means for the data, what to do next."""
    return _page(request, "error.html", 400 if isinstance(error, Refused) else 503, error=error)


@app.exception_handler(RequestValidationError)
def not_understood(request: Request, error: RequestValidationError) -> HTMLResponse:
    """Show what is missing or wrong in an address."""
    parts = "; ".join(f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in error.errors())
    told = Refused(f"this address can't be understood: {parts}", hint="go back to the list of pipelines")
    return _page(request, "error.html", 422, error=told)


@app.exception_handler(StarletteHTTPException)
def not_allowed(request: Request, error: StarletteHTTPException) -> HTMLResponse:
    """Show why a user who is not logged in or has no permission gets nothing, or that the address does not exist."""
    hints = {401: "log in to Airflow, then load this page again", 403: "ask for permission to read the runs of the DAG"}
    told = Refused(str(error.detail), hint=hints.get(error.status_code, "go back to the list of pipelines"))
    return _page(request, "error.html", error.status_code, error=told)


def _cards(ask: Ask, instance: str | None) -> list[Card]:
    return cards(
        ask("pipelines", instance=instance),
        ask("recent", instance=instance, n=RECENT),
        ask("broken", instance=instance, n=COMPARED),
        ask("lag", instance=instance),
        ask("catalog", instance=instance),
    )


def _parts(ask: Ask, instance: str, *, rejects: bool) -> dict[str, Any]:
    """Return what only some pipelines have; all of it is empty for a pipeline of one source of files and one output."""
    inputs, reads = ask("inputs", instance=instance), ask("outputs", instance=instance)
    telling = [
        row for row in inputs if row["source"] or row["version"] is not None or row["schemas"] or row["key_schemas"]
    ]
    return {
        "inputs": telling,
        "schemas": ask("schemas", instance=instance, n=RECENT)
        if any(row["schemas"] or row["key_schemas"] for row in inputs)
        else [],
        "reads": reads if any(row["reads"] != "events" for row in reads) else [],
        "state": ask("state", instance=instance),
        "held": ask("held", instance=instance, n=FEW),
        "reasons": ask("reasons", instance=instance, n=RECENT, most=REASONS) if rejects else [],
    }


def _outputs(incarnations: list[dict[str, Any]]) -> list[str]:
    return list(
        dict.fromkeys(incarnation["query"] for incarnation in incarnations if incarnation["query"] != "receive")
    )


def _at(order: Order, *names: str, text: str | None = None) -> dict[str, Any]:
    return dict(zip(names, order.place(text), strict=True))


def _nothing(what: str) -> Any:
    raise HTTPException(404, what)


def _page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    url = partial(_url, request.scope.get("root_path", ""))
    reader = getattr(request.state, "reader", None)  # none if the log could not be read
    html = _templates.get_template(template).render(url=url, q=values.pop("q", ""), reader=reader, **values)
    return HTMLResponse(html, status, _HEADERS)


def _url(root: str, path: str, **parameters: Any) -> str:
    given: Mapping[str, Any] = {name: value for name, value in parameters.items() if value is not None}
    return f"{root}/{quote(path)}" + (f"?{urlencode(given)}" if given else "")
