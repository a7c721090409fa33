"""The page on a real Airflow: closed to strangers, in the menu, as a tab of a DAG run, and linked from the task."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from onlyonce.local.airflow_api import AirflowApi
from tests.support import needed

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(900)]

DAG = "user_counts_stream"
PAGE = "/exactly-once"
CUT = """(entry, name) => {
    const words = document.createTreeWalker(entry, NodeFilter.SHOW_TEXT);
    const label = words.nextNode().parentElement;
    label.textContent = name;
    return label.scrollWidth > label.clientWidth || label.scrollHeight > label.clientHeight;
}"""
"""Put a name into an entry of Airflow's menu, and return whether it does not fit there."""
PATIENCE = 120
"""Seconds for an answer: on a busy machine the first look at a page may take long."""


@pytest.fixture(scope="module")
def run(api: AirflowApi) -> str:
    """A run with something to commit, whatever others have read: a bounded one takes all input."""
    run = api.trigger(DAG, {"bounded": True})
    assert api.wait_for_run(DAG, run, 400) == "success", api.task_log(DAG, run, "run")[-3000:]
    return run


@pytest.fixture(scope="module")
def page(api: AirflowApi) -> Iterator[Any]:
    """A browser's page, logged in. Skipped where there is no Chromium."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    found = needed.browser()
    api.dags()  # which logs in
    token = api._client.headers["Authorization"].removeprefix("Bearer ")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        context = browser.new_context(viewport={"width": 1280, "height": 860}, color_scheme="dark")
        context.add_cookies([{"name": "_token", "value": token, "url": api.base_url}])
        yield context.new_page()
        browser.close()


def picture(page: Any, name: str) -> None:
    """A screenshot, where ONLYONCE_SCREENSHOTS names a folder for it."""
    if folder := os.environ.get("ONLYONCE_SCREENSHOTS"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"))


@pytest.mark.parametrize("path", ["/", f"/runs?dag_id={DAG}&run_id=any", "/search?q=any", "/pipelines/user_counts"])
def test_a_stranger_sees_nothing(api: AirflowApi, path: str) -> None:
    """Airflow does not guard what a plugin mounts; the page does it by itself."""
    answer = httpx.get(api.base_url + PAGE + path, trust_env=False, timeout=PATIENCE)

    assert answer.status_code == 401
    assert "user_counts" not in answer.text


def test_who_is_logged_in_sees_the_pipelines(api: AirflowApi, run: str) -> None:
    """With the token of the session, as everywhere in Airflow."""
    answer = api._send("GET", f"{PAGE}/")

    assert answer.status_code == 200
    assert 'data-pipeline="user_counts@' in answer.text
    assert "✓ all records add up" in answer.text


def test_airflow_has_the_plugin_without_an_error(api: AirflowApi) -> None:
    """The menu's entry and the tab, and no file of the plugins folder that could not be imported."""
    [ours] = [plugin for plugin in api._call("GET", "plugins")["plugins"] if plugin["name"] == "onlyonce"]

    assert {(view["destination"], view["url_route"]) for view in ours["external_views"]} == {
        ("nav", "exactly-once"), ("dag_run", "commits"),
    }  # fmt: skip
    assert api._call("GET", "plugins/importErrors")["import_errors"] == []


def test_the_task_links_to_the_tab_of_its_run(api: AirflowApi, run: str) -> None:
    """By the link that the task has stored."""
    links = api._call("GET", f"dags/{DAG}/dagRuns/{quote(run, safe='')}/taskInstances/run/links")["extra_links"]

    assert links == {"Commits of this run": f"/dags/{DAG}/runs/{quote(run, safe='')}/plugin/commits"}


@pytest.mark.browser
def test_the_menu_leads_to_the_page(api: AirflowApi, run: str, page: Any) -> None:
    """In a frame of Airflow's own UI, where links and the search box work too. The entry shows its whole name."""
    page.goto(api.base_url)
    entry = page.get_by_role("link", name="onlyonce")
    entry.click()
    assert not entry.evaluate(CUT, "onlyonce")
    assert entry.evaluate(CUT, "Exactly once")  # a longer name is cut, so the check can fail
    entry.evaluate(CUT, "onlyonce")
    frame = page.frame_locator("iframe")
    frame.locator("[data-pipeline]").first.wait_for(timeout=60_000)
    picture(page, "menu")
    frame.get_by_label("What became of record X?").fill(run)
    frame.get_by_role("button", name="Search").click()
    frame.get_by_text("The last batches of the run").wait_for(timeout=60_000)


@pytest.mark.browser
def test_the_run_has_a_tab_with_its_commits(api: AirflowApi, run: str, page: Any) -> None:
    """SourceProgress by a click on the page of the run, and by the task's link."""
    page.goto(f"{api.base_url}/dags/{DAG}/runs/{quote(run, safe='')}")
    page.get_by_role("link", name="Commits", exact=True).click(timeout=60_000)
    frame = page.frame_locator("iframe")
    frame.locator("[data-unit]").first.wait_for(timeout=60_000)
    sinks = frame.locator("[data-sink]").evaluate_all("rows => rows.map(row => row.dataset.sink)")
    picture(page, "tab")

    assert set(sinks) == {"events", "per_user", "of_all"}
