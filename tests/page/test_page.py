"""The page tells what the log holds: each figure against the tables themselves, paging, escaping, rights."""

from __future__ import annotations

import re
from collections import Counter
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from onlyonce.airflow.page.app import age, app, number, size, time
from onlyonce.commitlog.health import Health
from onlyonce.commitlog.incarnations import Incarnations
from onlyonce.core.diagnosis import Finding, new_incarnation
from onlyonce.database.statements import queries
from tests.contract.conftest import Log, ask
from tests.page.conftest import PREFIX, Token
from tests.page.shop import EVIL, Shop, events

PRIVATE = "onlyonce_private"


def figures(html: str) -> dict[str, str]:
    """The figures of the first card, by name."""
    return {
        name: re.sub("<[^>]+>", "", value).strip()
        for name, value in re.findall(r'data-figure="(\w+)">(.*?)</dd>', html)
    }


def get(client: TestClient, path: str, **parameters: Any) -> str:
    """A page's HTML."""
    answer = client.get(path, params=parameters or None)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_the_figures_of_a_pipeline_are_those_of_the_log(log: Log, shop: Shop, client: TestClient) -> None:
    """Each one against a question of the private tables."""
    [(batches, kept, duplicate, invalid, expired, last, max_event_time)] = log.rows(
        "SELECT count(*), sum(kept)::int, sum(duplicate)::int, sum(invalid)::int, sum(expired)::int, "
        "max(batch_id), max(max_event_time_after) "
        f"FROM {PRIVATE}.batches WHERE incarnation = 'shop/receive/1' AND state = 'committed'"
    )
    [(late,)] = log.rows(f"SELECT sum(late)::int FROM {PRIVATE}.window_counts")
    [(epoch,)] = log.rows(f"SELECT epoch FROM {PRIVATE}.epochs WHERE incarnation = 'shop/receive/1'")
    [(ids, stored)] = log.rows(
        f"SELECT sum(id_count)::int, sum(length(ids) + length(filter))::int FROM {PRIVATE}.catalog_chunks"
    )
    [(wrong, judged)] = log.rows(
        f"SELECT sum(false_positives)::int, sum(false_positives + lookups_spared)::int FROM {PRIVATE}.units "
        f"WHERE incarnation = 'shop/receive/1' AND sink = 'events' AND batch_id > %s - 60 AND batch_id <= %s",
        last,
        last,
    )
    html = get(client, "/")

    assert batches == 120
    assert wrong == 2
    assert late == 12
    assert figures(html) == {
        "epoch": number(epoch), "last_batch": number(last), "max_event_time": time(max_event_time), "kept": number(kept),
        "duplicate": number(duplicate), "late": number(late), "invalid": number(invalid), "expired": number(expired),
        "ids": f"{number(ids)} {size(stored)}", "false_positives": f"1 in {number(judged / wrong)}",
    }  # fmt: skip
    assert "✓ all records add up" in html
    assert figures(get(client, "/pipelines/shop")) == figures(html)


def test_the_lag_of_each_stage_is_shown(log: Log, shop: Shop, client: TestClient) -> None:
    """The begun batch waits for receive, the two versions that it has not read for the output."""
    lags = dict(re.findall(r'data-lag="(\w+)"[^>]*>([^<]*)<', get(client, "/")))
    seen = dict(log.rows("SELECT stage, extract(epoch FROM system_lag)::float FROM onlyonce.lag"))

    assert lags.keys() == seen.keys() == {"receive", "per_shop"}
    for stage, text in lags.items():
        assert text.removesuffix(" behind") in {age(seen[stage] - past) for past in range(120)}


def test_time_to_catch_up_is_shown(log: Log, shop: Shop, client: TestClient) -> None:
    """Of the output by its own rate; of receive once its source was asked."""
    shown = dict(re.findall(r'data-catch-up="(\w+)">([^<]*)<', get(client, "/pipelines/shop")))
    [(seconds,)] = log.rows("SELECT extract(epoch FROM catch_up)::float FROM onlyonce.lag WHERE stage = 'per_shop'")

    assert seconds is not None
    assert shown == {"receive": "–", "per_shop": age(seconds)}


def test_the_charts_show_the_last_batches_one_bar_each(log: Log, shop: Shop, client: TestClient) -> None:
    """Kept, duplicates and late rows by batch, with the count in the title of the bar."""
    html = unescape(get(client, "/"))
    drawn = dict(re.findall(r'data-chart="([\w ]+)">(.*?)</figure>', html, re.DOTALL))

    def bars(chart: str) -> Counter[tuple[int, int]]:
        return Counter(
            (int(b), int(n))
            for b, n in re.findall(r"<title>batch (\d+), [^:]+:\d+:\d+: ([\d,]+)</title>", drawn[chart])
        )

    def oracle(column: str, query: str) -> Counter[Any]:
        last = (
            f"SELECT batch_id, {column} FROM {PRIVATE}.batches WHERE incarnation = 'shop/{query}/1' AND state = "
            "'committed' "
        )
        return log.multiset(f"SELECT * FROM ({last} ORDER BY batch_id DESC LIMIT 60) x WHERE {column} > 0")

    assert bars("kept") == oracle("kept", "receive")
    assert len(bars("kept")) == 60
    assert bars("duplicate") == oracle("duplicate", "receive")
    assert bars("late") == oracle("late", "per_shop")
    assert len(bars("late")) == 2
    told = set(re.findall(r"<title>batch (\d+), [^:]+:\d+:\d+: ([^<]+)</title>", drawn["arrival to commit"]))
    batches = f"SELECT batch_id, extract(epoch FROM committed_at - ingestion_time)::float FROM {PRIVATE}.batches "
    last = f"{batches} WHERE incarnation = 'shop/per_shop/1' AND state = 'committed' ORDER BY batch_id DESC LIMIT 60"
    assert told == {(f"{batch}", age(seconds)) for batch, seconds in log.rows(last) if seconds > 0}
    assert told


def test_what_the_doctor_found_last_is_on_the_first_page(log: Log, shop: Shop, client: TestClient) -> None:
    """Nobody has looked; nothing was found; something was: each finding with its repair, and no markup of its own."""
    assert "The doctor has not looked yet" in get(client, "/")

    Health(log.database).note([])
    assert "Nothing is stuck" in get(client, "/")

    stuck = Finding("checkpoint", EVIL, "it is gone", "nothing is lost", new_incarnation("shop/per_shop"))
    Health(log.database).note([stuck.row()])
    html = get(client, "/")
    assert re.findall(r'data-finding="(\w+)"', html) == ["checkpoint"]
    assert "1 thing is stuck" in html
    assert "onlyonce reset shop/per_shop --yes" in html
    assert EVIL in unescape(html)
    assert EVIL not in html


@pytest.mark.parametrize("where", ["old batch", "units"])
def test_a_record_that_is_lost_from_the_books_is_red(log: Log, shop: Shop, client: TestClient, where: str) -> None:
    """Whether a batch does not add up, however old, or a late one has other sums than its units."""
    if where == "units":
        shop.break_books()
    else:
        log.rows(f"UPDATE {PRIVATE}.batches SET kept = kept - 1 WHERE (incarnation, batch_id) = ('shop/receive/1', 1)")
    for path in ("/", "/pipelines/shop"):
        html = get(client, path)
        assert "✗ records do not add up" in html
        assert "✓ all records add up" not in html
    if where == "units":
        assert "shop/receive/1/119</a>" in html


@pytest.mark.parametrize("path, parameters, mark, statement", [
    ("batches", {"incarnation": "shop/receive/1"}, "batch", f"SELECT batch_id::text FROM {PRIVATE}.batches WHERE incarnation = 'shop/receive/1'"),
    ("windows", {"output": "per_shop"}, "window",
     "SELECT to_char(window_start AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS+00:00/') || generation FROM " "onlyonce_private.panes"),
    ("late", {"output": "per_shop"}, "window",
     "SELECT to_char(window_start AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS+00:00') FROM " "onlyonce_private.window_counts WHERE late > 0"),
])  # fmt: skip
def test_paging_shows_each_row_once(
    log: Log, shop: Shop, client: TestClient, path: str, parameters: dict[str, str], mark: str, statement: str
) -> None:
    """All rows that were there, none twice, also when new ones come in between two pages; newest first."""
    there = log.multiset(statement)
    shown, pages, following = [], 0, f"{PREFIX}/pipelines/shop/{path}"
    while following:
        html = get(client, f"http://airflow{following}", **({} if pages else parameters))
        shown += re.findall(rf'data-{mark}="([^"]+)"', html)
        more = re.search(r'rel="next" href="([^"]+)"', html)
        following, pages = unescape(more[1]) if more else "", pages + 1
        shop.do(shop.receive(), shop.output(late=1))

    assert Counter((row,) for row in shown) == there
    assert pages == len(shown) // 51 + 1
    assert shown == sorted(shown, key=lambda row: int(row) if mark == "batch" else row, reverse=True)


def test_the_windows_have_their_generations_and_states(log: Log, shop: Shop, client: TestClient) -> None:
    """The same rows as the view, with the late ones that a backfill has included."""
    html = get(
        client,
        "/pipelines/shop/windows",
        output="per_shop",
        before="2026-03-01T07:00:00+00:00~2026-03-01T08:00:00+00:00~0",
    )
    rows = re.findall(r'<tr class="([\w ]+)" data-window="([^"/]+)/(\d+)">(.*?)</tr>', html, re.DOTALL)
    cells = {
        (start[11:13], int(generation)): (state, re.sub("<[^>]+>", "|", rest).split("|"))
        for state, start, generation, rest in rows
    }

    assert {key: state for key, (state, _) in cells.items()} == {
        ("00", 0): "closed", ("01", 0): "closed", ("02", 0): "closed", ("03", 0): "replaced", ("03", 1): "closed",
        ("04", 0): "replaced", ("04", 1): "replaced", ("04", 2): "closed", ("05", 0): "replaced", ("05", 1): "closed",
        ("06", 0): "closed",
    }  # fmt: skip
    late, not_folded = cells["04", 2][1][8:10]
    assert (late, not_folded) == ("3", "0")


def test_a_run_shows_what_it_committed_and_nothing_of_another_dag(log: Log, shop: Shop, client: TestClient) -> None:
    """Scheduled runs of two DAGs have one id; the log tells which pipeline each has driven, whatever the DAGs are
    called."""
    other = Shop(log, "other")
    other.do(other.receive(run_id="scheduled__1"), other.output(run_id="scheduled__1"))
    other.driven_by("other one", "scheduled__1")
    html = get(client, "/runs", dag_id="hourly", run_id="scheduled__1")
    units = re.findall(r'data-unit="([^"]+)"', html)
    committed = log.rows(
        f"SELECT u.unique_id FROM {PRIVATE}.units u JOIN {PRIVATE}.batches b USING (incarnation, batch_id) "
        f"WHERE b.run_id = 'scheduled__1' AND u.incarnation LIKE 'shop/%' ORDER BY u.committed_at DESC, u.unique_id DESC"
    )

    assert len(committed) == 120
    assert [(unit,) for unit in units] == committed[:50]
    assert 'data-sink="events"' in html
    assert set(re.findall(r'data-unit="([^"/]+)', get(client, "/runs", dag_id="other one", run_id="scheduled__1"))) == {
        "other"
    }
    assert "data-unit" not in get(client, "/runs", dag_id="onlyonce_audit", run_id="scheduled__1")
    backfill = get(client, "/runs", dag_id="again", run_id="manual__backfill")
    assert re.findall(r'data-unit="([^"]+)"', backfill) == [
        "shop/per_shop@2026-03-01T03:00:00Z--2026-03-01T06:00:00Z/1/0/per_shop/0"
    ]


def test_a_batch_shows_the_versions_of_its_lookups(log: Log, shop: Shop, client: TestClient) -> None:
    """As its row has them; where there are none nothing is said."""
    told = '{"shops": {"version": 17, "table": "t"}, "cities": {"version": 4, "table": "u"}}'
    log.rows(
        f"UPDATE {PRIVATE}.batches SET lookups = %s WHERE incarnation = 'shop/per_shop/1' AND batch_id = 3 RETURNING 1",
        told,
    )
    assert "cities at version 4, shops at version 17" in get(client, "/batches", incarnation="shop/per_shop/1", batch=3)
    assert "lookups that it saw" not in get(client, "/batches", incarnation="shop/per_shop/1", batch=4)


def test_every_page_of_a_runs_commits_together_has_each_once(log: Log, shop: Shop, client: TestClient) -> None:
    """By the place of the last one, units of one moment included."""
    shown, following = [], "/runs?dag_id=hourly&run_id=scheduled__0"
    while following:
        html = get(client, following)
        shown += re.findall(r'data-unit="([^"]+)"', html)
        more = re.search(r'rel="next" href="([^"]+)"', html)
        following = unescape(more[1]).removeprefix(PREFIX) if more else ""

    assert len(shown) == len(set(shown)) == 40 * 3


def test_names_are_text_and_never_html(log: Log, client: TestClient, tmp_path: Path) -> None:
    """An instance, a run and a search whose names are markup; each page that shows one."""
    evil = Shop(log)
    evil.do(evil.receive(run_id=EVIL), evil.output(run_id=EVIL, late=1))
    evil.driven_by(EVIL, EVIL)
    Incarnations(log.database).add_instance(EVIL, EVIL)
    log.rows(f"UPDATE {PRIVATE}.pipelines SET pipeline = %s WHERE instance = 'shop'", EVIL)
    events(tmp_path)
    shown: list[tuple[str, dict[str, Any]]] = [
        ("/", {}), ("/pipelines/shop", {}), ("/pipelines/shop/batches", {"incarnation": "shop/receive/1"}),
        ("/batches", {"incarnation": "shop/receive/1", "batch": 0}), ("/search", {"q": EVIL}), ("/search", {"q": "sale=2"}),
        ("/runs", {"dag_id": EVIL, "run_id": EVIL}), ("/runs", {"dag_id": EVIL, "run_id": "none"}),
    ]  # fmt: skip
    for path, parameters in shown:
        html = get(client, path, **parameters)
        assert "<script" not in html
        assert "<b>" not in html
    assert client.get(f"/pipelines/{EVIL.replace('/', '')}").status_code == 404
    assert "<script" not in client.get(f"/pipelines/{EVIL.replace('/', '')}").text


PATHS = [
    "/", "/pipelines/shop", "/pipelines/shop/batches?incarnation=shop/receive/1", "/pipelines/shop/windows?output=per_shop",
    "/pipelines/shop/late?output=per_shop", "/pipelines/shop/files", "/pipelines/shop/backfills", "/batches?incarnation=shop/receive/1&batch=0",
    "/pipelines/shop/unread",
    "/runs?dag_id=hourly&run_id=scheduled__0", "/search?run_id=scheduled__1",
]  # fmt: skip


def test_every_route_is_among_those_that_are_tried() -> None:
    """So that a new one is tried without a login too."""
    tried = {re.sub(r"^/pipelines/shop", "/pipelines/{instance}", path.partition("?")[0]) for path in PATHS}

    assert {route.path for route in app.routes} == tried  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", PATHS)
def test_nobody_sees_it_without_a_login(shop: Shop, anonymous: TestClient, token: Token, path: str) -> None:
    """No token: 401. A forged one: 403. A user's, by cookie or header: the page, never stored and without scripts."""
    answer = anonymous.get(path)
    assert answer.status_code == 401
    assert "shop/" not in answer.text
    assert anonymous.get(path, headers={"Authorization": "Bearer forged"}).status_code == 403
    answer = anonymous.get(path, headers={"Authorization": f"Bearer {token('VIEWER')}"})
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert anonymous.get(path, headers={"Cookie": f"_token={token('VIEWER')}"}).status_code == 200


@pytest.mark.parametrize("path, status", [
    ("/pipelines/shop/late", 422), ("/batches?incarnation=x&batch=minus", 422), ("/no/such/page", 404), ("/runs", 422),
])  # fmt: skip
def test_an_address_that_means_nothing_is_answered_with_a_page(
    shop: Shop, client: TestClient, anonymous: TestClient, path: str, status: int
) -> None:
    """People read it, with a login or without."""
    told = client.get(path)

    assert told.status_code == status
    for answer in (told, anonymous.get(path)):
        assert answer.headers["content-type"].startswith("text/html")
        assert "Next: " in answer.text
        assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json"])
def test_the_api_does_not_describe_itself(anonymous: TestClient, path: str) -> None:
    """FastAPI's own pages ask nobody who they are."""
    assert anonymous.get(path).status_code in (401, 404)


@pytest.mark.parametrize("path, parameters", [
    ("/pipelines/shop/windows", {"output": "per_shop", "before": "yesterday"}),
    ("/pipelines/shop/windows", {"output": "per_shop", "before": "2026-03-01T00:00:00~2026-03-01T01:00:00~0"}),
    ("/runs", {"dag_id": "shop_stream", "run_id": "x", "before": "~~~"}),
    ("/batches", {"incarnation": "shop/\0", "batch": "1"}), ("/search", {"run_id": "\0"}), ("/search", {"q": "\0"}),
    ("/search", {"q": "oo_raw=1"}), ("/search", {"q": "sale='1"}),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_the_next_step(
    shop: Shop, client: TestClient, path: str, parameters: dict[str, str]
) -> None:
    """As one page, not as an error of the server."""
    answer = client.post(path, data=parameters) if "q" in parameters else client.get(path, params=parameters)

    assert answer.status_code == 400
    assert "Next: " in answer.text


def test_before_the_first_run_the_page_says_so(
    mounted: FastAPI, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty log; and no platform at all."""
    assert "No pipeline has run yet" in get(client, "/")
    monkeypatch.delenv("ONLYONCE_READER_URL")
    answer = client.get("/")
    assert answer.status_code == 400
    assert "onlyonce up" in answer.text


def test_a_database_that_no_run_has_used_says_so(log: Log, client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after the installation into an Airflow: the database is there, and the first run makes the tables."""
    monkeypatch.setenv("ONLYONCE_READER_URL", log.server.url("admin", "postgres"))
    answer = client.get("/")

    assert answer.status_code == 400
    assert "no run has used this database yet" in answer.text


def test_a_log_that_is_away_is_told_and_no_traceback(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the platform's three lines."""
    monkeypatch.setenv("ONLYONCE_READER_URL", "postgresql+psycopg2://nobody@127.0.0.1:1/none")
    answer = client.get("/")

    assert answer.status_code == 503
    assert "did not answer" in answer.text


def test_the_page_asks_as_the_reader_and_reads_only(log: Log, shop: Shop, client: TestClient, server: Any) -> None:
    """All of it under the reader's name, in read-only transactions: the only URL that it has is the reader's."""
    ask(server.url("admin"), "SELECT pg_stat_reset()")
    sessions = (
        "SELECT usename, count(*) FROM pg_stat_activity WHERE application_name = 'onlyonce-page' AND datname = "
        "%s GROUP BY 1"
    )
    for path in PATHS:
        get(client, path)

    assert ask(server.url("admin"), sessions, log.name) == [("onlyonce_reader", 1)]


@pytest.mark.parametrize("role", ["reader", "writer", "admin"])
def test_the_foot_of_the_page_states_the_permission_of_its_role(
    log: Log, shop: Shop, client: TestClient, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    """As the session has it: an Airflow with the writer's connection alone reads with the writer."""
    monkeypatch.setenv("ONLYONCE_READER_URL", log.server.url(role, log.name))
    foot = get(client, "/").partition("<footer>")[2]

    assert ("has no permission to change it" in foot) == (role == "reader")
    assert ("has permission to change it" in foot) == (role != "reader")


@pytest.mark.parametrize("query", sorted(queries("page")))
def test_no_question_of_the_page_needs_a_private_table(query: str) -> None:
    """By its text; the reader could not ask it anyway."""
    assert "onlyonce_private" not in queries("page")[query]
