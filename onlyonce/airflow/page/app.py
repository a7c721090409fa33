"""The FastAPI app behind the page.

Airflow's API server mounts it; every route shows a user of Airflow what `sight` permits.

Each answer is one HTML page without scripts. Who calls it: browsers, in a frame of Airflow's UI or alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs, quote, urlencode

import jinja2
from airflow.api_fastapi.core_api.security import GetUserDep, get_user
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from onlyonce.airflow.page import cards, charts, late_records, pages, search, sight
from onlyonce.airflow.page.pages import ROWS
from onlyonce.airflow.page.read import Ask, log
from onlyonce.catalog.bloom import FALSE_POSITIVES
from onlyonce.model.errors import OnlyonceError, Refused
from onlyonce.model.visible import visible

FEW = 5
"""How many backfills and files the page of a pipeline has; a link leads to all."""
REASONS = 100_000
"""How many rejected records are looked through for their reasons."""
RECENT = 60
"""How many batches of each stage the charts show."""
COMPARED = 100
"""How many batches of each stage are compared with their units, each time the page is loaded. The DAG `onlyonce_audit`
compares all."""

# Its own page of the API would be open to everybody, and is of no use here.
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
    # What a macro gives is HTML already, made of values that were visible.
    finalize=lambda value: visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value,
)
_templates.filters.update(number=charts.number, size=charts.size, time=charts.time, age=charts.age)
_templates.globals.update(
    span=charts.span, recent=RECENT, compared=COMPARED, most=REASONS, one_in=round(1 / FALSE_POSITIVES), few=FEW
)
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
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
    """What is stuck, by the doctor's last look; then every pipeline and bounded run."""
    with log(user) as ask:
        found, looked = _cards(ask, None), ask("findings")
    return _page(
        request, "overview.html", cards=found, looked=looked, findings=[row for row in looked if row["finding"]]
    )


@app.get("/pipelines/{instance}")
def pipeline(request: Request, user: GetUserDep, instance: str) -> HTMLResponse:
    """One pipeline: its numbers, its charts, and the first page of each of its lists."""
    with log(user) as ask:
        [card] = _cards(ask, instance) or _nothing(f"no pipeline {instance} has run, or none that you may see")
        lives = ask("lives", instance=instance)
        outputs = _outputs(lives)
        late = {
            o: ask("late_windows", instance=instance, output=o, n=RECENT, **_at(pages.LATE, "start", "end"))
            for o in outputs
        }
        backfills = ask("backfills", instance=instance, n=FEW, **_at(pages.BACKFILLS, "begun_at", "lineage", "batch"))
        files = ask("waiting_files", instance=instance, n=FEW, **_at(pages.FILES, *pages.FILES.columns))
        parts = _parts(ask, instance, rejects=bool(card.of["rejected"]))
        withheld = None if ask.sees_records(instance) else sight.NOT_PERMITTED
    late_charts = {output: cards.late_by_window(rows) for output, rows in late.items()}
    return _page(
        request,
        "pipeline.html",
        instance=instance,
        card=card,
        lives=lives,
        outputs=outputs,
        late=late_charts,
        backfills=backfills,
        files=files,
        withheld=withheld,
        **parts,
    )


@app.get("/pipelines/{instance}/batches")
def batches(request: Request, user: GetUserDep, instance: str, lineage: Text, before: Place = None) -> HTMLResponse:
    """The batches of one life of one query, newest first."""
    if not lineage.startswith(f"{instance}/"):
        _nothing(f"{lineage} is no lineage of {instance}")
    with log(user) as ask:
        rows = ask("batches", lineage=lineage, n=ROWS + 1, **_at(pages.BATCHES, "before", text=before))
    shown = pages.page(rows, pages.BATCHES)
    return _page(
        request, "batches.html", instance=instance, lineage=lineage, page=shown, receive="/receive/" in lineage
    )


@app.get("/pipelines/{instance}/windows")
def windows(request: Request, user: GetUserDep, instance: str, output: Text, before: Place = None) -> HTMLResponse:
    """The windows of an output with all their generations, newest first."""
    at = _at(pages.WINDOWS, "start", "end", "generation", text=before)
    with log(user) as ask:
        rows = ask("windows", instance=instance, output=output, n=ROWS + 1, **at)
    return _page(request, "windows.html", instance=instance, output=output, page=pages.page(rows, pages.WINDOWS))


@app.get("/pipelines/{instance}/late")
def late(request: Request, user: GetUserDep, instance: str, output: Text, before: Place = None) -> HTMLResponse:
    """The windows of an output that records came too late for, newest first; with the first page the records."""
    with log(user) as ask:
        rows = ask(
            "late_windows", instance=instance, output=output, n=ROWS + 1, **_at(pages.LATE, "start", "end", text=before)
        )
        records = late_records.NOT_PERMITTED if rows and before is None else None
        permitted = ask.sees_records(instance)
    # No snapshot of the log is held while the table is read.
    if records and permitted:
        records = late_records.of_output(rows[0]["pipeline"], instance, output)
    shown = pages.page(rows, pages.LATE)
    return _page(request, "late.html", instance=instance, output=output, page=shown, records=records)


@app.get("/pipelines/{instance}/files")
def files(request: Request, user: GetUserDep, instance: str, after: Place = None) -> HTMLResponse:
    """The files of a pipeline that have no final name yet."""
    with log(user) as ask:
        rows = ask("waiting_files", instance=instance, n=ROWS + 1, **_at(pages.FILES, *pages.FILES.columns, text=after))
    return _page(request, "files.html", instance=instance, page=pages.page(rows, pages.FILES))


@app.get("/pipelines/{instance}/backfills")
def backfills(request: Request, user: GetUserDep, instance: str, before: Place = None) -> HTMLResponse:
    """The backfills of a pipeline, newest first."""
    at = _at(pages.BACKFILLS, "begun_at", "lineage", "batch", text=before)
    with log(user) as ask:
        rows = ask("backfills", instance=instance, n=ROWS + 1, **at)
    return _page(request, "backfills.html", instance=instance, page=pages.page(rows, pages.BACKFILLS))


@app.get("/batches")
def batch(
    request: Request, user: GetUserDep, lineage: Text, batch: Annotated[int, Query(ge=0, lt=2**62)], after: Place = None
) -> HTMLResponse:
    """One batch or backfill, and its units."""
    at = _at(pages.UNITS, "sink", "partition", text=after)
    with log(user) as ask:
        [of] = ask("batch", lineage=lineage, batch=batch) or _nothing(f"no batch {lineage}/{batch}")
        units = ask("units_of_batch", lineage=lineage, batch=batch, n=ROWS + 1, **at)
    return _page(request, "batch.html", of=of, page=pages.page(units, pages.UNITS))


@app.get("/runs")
def run(request: Request, user: GetUserDep, dag_id: Text, run_id: Text, before: Place = None) -> HTMLResponse:
    """What a DAG run committed: the tab on its page in Airflow.

    Runs of two DAGs may have one id; the log has which pipelines each has driven.
    """
    with log(user) as ask:
        if not ask.may(dag_id, "GET"):
            raise HTTPException(403, f"no permission to read runs of {dag_id}")
        pipelines = [row["pipeline"] for row in ask("pipelines_of_run", dag_id=dag_id, run_id=run_id)]
        known = {"run_id": run_id, "pipelines": pipelines}
        sums = ask("run_sums", **known) if pipelines else None
        at = _at(pages.COMMITS, "committed_at", "unique_id", text=before)
        rows = ask("commits_of_run", n=ROWS + 1, **known, **at) if pipelines else []
    return _page(request, "run.html", dag_id=dag_id, run_id=run_id, sums=sums, page=pages.page(rows, pages.COMMITS))


@app.get("/search")
def search_form(request: Request, user: GetUserDep, run_id: Text = "") -> HTMLResponse:
    """Show the form of a search, or the batches of a run.

    An address never contains a value of a record: it is logged.
    """
    with log(user) as ask:
        found = search.of_run(ask, run_id) if run_id else None
    return _page(request, "search.html", q=run_id, found=found)


@app.post("/search")
def what_became_of(request: Request, user: GetUserDep, q: Annotated[str, Depends(_searched)]) -> HTMLResponse:
    """Show what became of a record, a unit, a batch or a run."""
    with log(user) as ask:
        found = search.find(ask, q) if q.strip() else None
    return _page(request, "search.html", q=q, found=found)


@app.exception_handler(OnlyonceError)
def refused(request: Request, error: OnlyonceError) -> HTMLResponse:
    """An error of the platform, in its three lines: what happened, what it means for the data, what to do next."""
    return _page(request, "error.html", 400 if isinstance(error, Refused) else 503, error=error)


@app.exception_handler(RequestValidationError)
def not_understood(request: Request, error: RequestValidationError) -> HTMLResponse:
    """An address with a part that is missing or can't be meant."""
    parts = "; ".join(f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg']}" for one in error.errors())
    told = Refused(f"this address can't be understood: {parts}", hint="go back to the list of pipelines")
    return _page(request, "error.html", 422, error=told)


@app.exception_handler(StarletteHTTPException)
def not_allowed(request: Request, error: StarletteHTTPException) -> HTMLResponse:
    """Who is not logged in, may not see it, or asks for what is not there, by whatever address."""
    hints = {401: "log in to Airflow, then load this page again", 403: "ask for permission to read the runs of the DAG"}
    told = Refused(str(error.detail), hint=hints.get(error.status_code, "go back to the list of pipelines"))
    return _page(request, "error.html", error.status_code, error=told)


def _cards(ask: Ask, instance: str | None) -> list[cards.Card]:
    return cards.cards(
        ask("pipelines", instance=instance),
        ask("recent", instance=instance, n=RECENT),
        ask("broken", instance=instance, n=COMPARED),
        ask("lag", instance=instance),
        ask("catalog", instance=instance),
    )


def _parts(ask: Ask, instance: str, *, rejects: bool) -> dict[str, Any]:
    """What only some pipelines have; all of it is empty for one of a single source of files and one output."""
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


def _outputs(lives: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(life["query"] for life in lives if life["query"] != "receive"))


def _at(order: pages.Order, *names: str, text: str | None = None) -> dict[str, Any]:
    return dict(zip(names, order.place(text), strict=True))


def _nothing(what: str) -> Any:
    raise HTTPException(404, what)


def _page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    url = partial(_url, request.scope.get("root_path", ""))
    html = _templates.get_template(template).render(url=url, q=values.pop("q", ""), **values)
    return HTMLResponse(html, status, _HEADERS)


def _url(root: str, path: str, **parameters: Any) -> str:
    given: Mapping[str, Any] = {name: value for name, value in parameters.items() if value is not None}
    return f"{root}/{quote(path)}" + (f"?{urlencode(given)}" if given else "")
