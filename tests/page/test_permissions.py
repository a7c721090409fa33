"""What a user of Airflow sees of the log: the pipelines of the DAGs that Airflow shows, and record values with a
permission more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from onlyonce.airflow.page import find, read
from onlyonce.commitlog.health import Health
from onlyonce.core.diagnosis import Finding, Repair
from onlyonce.settings import ROOT
from tests.contract.conftest import Log
from tests.page.shop import EVIL, Shop, events
from tests.page.test_details import PARTS
from tests.page.test_page import PATHS
from tests.page.test_search import asked

SECURITY = Path(__file__).parents[2] / "docs/explanation/security.md"


@pytest.mark.parametrize(
    "path", [*PATHS, "/pipelines/shop/windows?output=per_shop&dag_id=other", "/search?run_id=scheduled__1&dag_id=other"]
)
def test_a_pipeline_of_other_dags_is_not_shown(shop: Shop, by_name: Any, tmp_path: Path, path: str) -> None:
    """A user of another team's DAG gets no line, batch or value of this pipeline, whatever DAG the address names."""
    events(tmp_path)
    client = by_name("other,shop_stream")  # the log has which DAGs drive the shop; the name of another proves nothing
    answers = [
        client.get(path),
        *(client.post("/search", data={"q": q}) for q in ("sale=1", "shop/receive/1/17", "scheduled__1")),
    ]

    for answer in answers:
        assert answer.status_code in (200, 403, 404)
        assert "incarnation=shop" not in answer.text
        assert not re.search(r"data-(record|unit|window|figure)", answer.text)
    mine = by_name("hourly")
    assert "incarnation=shop" in mine.get("/pipelines/shop").text
    assert "data-record" in asked(mine, "sale=1")


def test_rows_of_other_pipelines_do_not_fill_a_search(shop: Shop, by_name: Any) -> None:
    """A run's last batches are all of a pipeline of another team; an older one is the user's."""
    other = Shop(shop.log, "other", drivers={query: shop.log.start("other", query) for query in shop.next})
    shop.do(shop.receive(run_id="shared"))
    for _ in range(find.SHOWN):
        other.do(other.receive(run_id="shared"))

    html = by_name("hourly").get("/search", params={"run_id": "shared"}).text

    assert html.count("incarnation=shop") == 1
    assert "incarnation=other" not in html


def test_a_query_that_limits_its_rows_chooses_those_of_a_pipeline_first() -> None:
    """Rows that the user may not see are removed after the query, so the limit must not count them."""
    page = (ROOT / "sql/statements/page.sql").read_text()
    statements = dict(re.findall(r"^-- (\w+) --$(.*?)(?=^-- \w+ --$|\Z)", page, re.MULTILINE | re.DOTALL))
    limited = {name for name, sql in statements.items() if "LIMIT" in sql}

    assert len(limited) > 10
    assert {
        name for name in limited if not re.search(r":(instances?|incarnation|pipelines)\b", statements[name])
    } == set()


def test_record_values_need_permission_to_start_runs(
    shop: Shop, by_name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Off for viewers, on for those who may start runs; the setting turns it on for viewers, or off for all."""
    events(tmp_path)

    def found(role: str) -> bool:
        client = by_name("hourly", role)
        late = client.get("/pipelines/shop/late", params={"output": "per_shop"}).text
        searched = asked(client, "sale=1")
        withheld = read.NOT_PERMITTED
        assert (withheld in late) == (withheld in searched) == ("data-record" not in searched)
        return "data-record" in searched

    assert (found("VIEWER"), found("USER")) == (False, True)
    monkeypatch.setenv("ONLYONCE_PAGE_RECORDS", "viewers")
    assert found("VIEWER")
    monkeypatch.setenv("ONLYONCE_PAGE_RECORDS", "nobody")
    assert not found("USER")
    assert EVIL not in by_name("hourly").get("/search", params={"q": f"shop='{EVIL}'"}).text


def test_reasons_of_rejected_records_are_values(shop: Shop, by_name: Any) -> None:
    """A function writes a record's value into the reason, as the documentation's own example does."""
    shop.log.rows(PARTS.replace("no price", "no price of o'neil".replace("'", "''")))

    pages = {role: by_name("hourly", role).get("/pipelines/shop").text for role in ("VIEWER", "USER")}

    assert ["no price of" in page for page in pages.values()] == [False, True]
    assert [read.NOT_PERMITTED in page for page in pages.values()] == [True, False]


@pytest.mark.parametrize("kind", read.QUOTING)
def test_what_findings_quote_is_for_those_who_may_see_records(log: Log, shop: Shop, by_name: Any, kind: str) -> None:
    """An error of a function or an answer of a target repeats what was in the record.

    The kinds are the doctor's own.
    """
    stuck = Finding(
        kind,
        "shop/per_shop",
        "the last answer: no such person: o'neil",
        "nothing is lost",
        Repair("onlyonce deliver shop"),
    )
    Health(log.database).note([stuck.row()])

    pages = {role: by_name("hourly", role).get("/").text for role in ("VIEWER", "USER")}

    assert ["neil" in page for page in pages.values()] == [False, True]
    assert f'"{kind}"' in (ROOT / "onlyonce/core/diagnosis.py").read_text()


def test_the_page_of_security_says_so() -> None:
    """The three rules, as sentences of the documentation."""
    said = " ".join(SECURITY.read_text().split())

    for sentence in (
        "Airflow's page shows a pipeline only to users who may read runs of a DAG that drives it.",
        "Values of records are shown only to users who may start runs of such a DAG (`page_records`).",
        "A search is a POST, so no access log contains its values.",
    ):
        assert sentence in said
