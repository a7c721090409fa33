"""Each route of the page, taken from the app's own table, asked by those who may not see what it shows, and with what
can't be meant."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from onlyonce.airflow.page.app import app
from tests.page.shop import Shop, events

SHOP = {
    "instance": "shop", "incarnation": "shop/receive/1", "batch": "17", "output": "per_shop", "before": "", "after": "",
    "dag_id": "hourly", "run_id": "scheduled__1", "q": "",
}  # fmt: skip
"""What the log has, by the name of a route's parameter. A route with another parameter needs its value here."""
SEARCHES = (
    "shop/receive/1/17/events/1",
    "shop/receive/1/17",
    "scheduled__1",
    "id=7",
    "sale=1",
    "0000000000000001fffffffffffffffe",
)
UNKNOWN = str.maketrans("shop", "zxqj")
"""Makes a name of the log another one, which the log does not have."""
HOSTILE = (
    "shop\0", "\x1b[2J\x9b\u202e'\"><script>", "x" * 4_000, "' OR 1=1 -- %00 ../../etc/passwd",
    "9999-12-31T23:59:59-23:59~0001-01-01T00:00:00+23:59~" + "9" * 300, "9" * 300,
)  # fmt: skip
"""What a caller may write for each parameter."""
OVERRIDES = dict.fromkeys(("X-HTTP-Method-Override", "X-Method-Override", "X-Original-URL", "X-Rewrite-URL"), "GET")
ROUTES = sorted((method, route.path) for route in app.routes for method in route.methods)  # type: ignore[attr-defined]
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
each_route = pytest.mark.parametrize("method, path", ROUTES)


def called(client: TestClient, method: str, path: str, values: dict[str, str]) -> Response:
    """Ask a route with these values of its parameters."""
    [route] = [one for one in app.routes if one.path == path and method in one.methods]  # type: ignore[attr-defined]
    given = {one.name: values[one.name] for one in route.dependant.query_params if values[one.name]}  # type: ignore[attr-defined]
    address = path.format_map({name: quote(value, safe="") for name, value in values.items()})
    return client.request(method, address, params=given, data={"q": values["q"]} if method == "POST" else None)


def said(answer: Response, *names: str) -> tuple[int, str]:
    """Return an answer's status and its main part without the names that were asked for."""
    main = answer.text.partition("<main>")[2]
    for name in sorted(filter(None, names), key=len, reverse=True):
        main = main.replace(quote(name, safe=""), "…").replace(quote(name), "…").replace(name, "…")
    return answer.status_code, main


@each_route
@pytest.mark.parametrize("dags", ["", "other,shop_stream"])
def test_what_a_user_may_not_see_is_as_if_it_were_not_there(
    shop: Shop, by_name: Any, tmp_path: Path, method: str, path: str, dags: str
) -> None:
    """The answer is the one for names that the log does not have, so it does not even say whether the pipeline
    exists."""
    events(tmp_path)
    client = by_name(dags)

    for q in SEARCHES if method == "POST" else ("",):
        asked = SHOP | {"q": q}
        unknown = {name: value.translate(UNKNOWN) for name, value in asked.items()}
        # A column of the hidden table against one that no table has; an id that is there against one that is not.
        unknown["q"] = {"sale=1": "note=1", SEARCHES[-1]: SEARCHES[-1].replace("f", "a")}.get(q, unknown["q"])
        answer = called(client, method, path, asked)
        assert answer.status_code in (200, 403, 404)
        assert not re.search(r"data-(record|unit|window|figure|batch|sink)", answer.text)
        assert said(answer, *asked.values(), q.partition("=")[0]) == said(
            called(client, method, path, unknown), *unknown.values(), unknown["q"].partition("=")[0]
        )


@each_route
def test_a_login_is_asked_for_whatever_the_method(shop: Shop, anonymous: TestClient, method: str, path: str) -> None:
    """Also if a header names another method or address; a method that the route does not have is none."""
    assert called(anonymous, method, path, SHOP).status_code == 401
    anonymous.headers |= OVERRIDES
    for other in ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "X"):
        answer = anonymous.request(other, path.format_map(SHOP))
        assert answer.status_code in (401, 405)
        assert "shop/" not in answer.text


@each_route
def test_what_a_caller_writes_breaks_no_route(
    shop: Shop, client: TestClient, tmp_path: Path, method: str, path: str
) -> None:
    """The page answers, and no control character goes back into it. An error of a route is an error of this test."""
    events(tmp_path)
    [route] = [one for one in app.routes if one.path == path and method in one.methods]  # type: ignore[attr-defined]
    named = (*route.dependant.path_params, *route.dependant.query_params)  # type: ignore[attr-defined]
    for name in [*(one.name for one in named), *["q"] * (method == "POST")]:
        for value in HOSTILE:
            answer = called(client, method, path, SHOP | {name: value})
            assert answer.status_code in (200, 400, 404, 413, 422)
            assert CONTROL.findall(answer.text) == []
            assert "<script" not in answer.text


def test_a_nul_in_the_id_of_a_dag_does_not_reach_airflow(shop: Shop, by_name: Any) -> None:
    """Airflow's PostgreSQL has no answer to it: it was refused before Airflow is asked who may see the DAG."""
    assert by_name("other").get("/runs", params={"dag_id": "a\0", "run_id": "b"}).status_code == 400
