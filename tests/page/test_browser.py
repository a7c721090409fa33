"""The page in a real browser: narrow screens, dark mode, a broken book in red, the search box.

Chromium is the system's.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI

from onlyonce.airflow.page import unread
from tests.contract.conftest import Log
from tests.page.conftest import PREFIX, Token
from tests.page.shop import Shop, events
from tests.page.test_unread import answer, store
from tests.support import needed
from tests.support.platform import free_port

sync_api = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")

PATHS = [
    "/", "/pipelines/shop", "/pipelines/shop/batches?incarnation=shop/receive/1", "/pipelines/shop/windows?output=per_shop",
    "/pipelines/shop/late?output=per_shop", "/pipelines/shop/files", "/pipelines/shop/backfills", "/batches?incarnation=shop/receive/1&batch=3",
    "/runs?dag_id=hourly&run_id=scheduled__0", "/search?q=sale=1", "/search?q=nothing", "/pipelines/none",
]  # fmt: skip

pytestmark = pytest.mark.browser

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """The system's Chromium, without a window."""
    found = needed.browser()
    with sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = playwright.chromium.launch(executable_path=found, args=arguments)
        yield started
        started.close()


@pytest.fixture
def address(mounted: FastAPI) -> Iterator[str]:
    """Where the page is served."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(mounted, host="127.0.0.1", port=port, log_level="error", lifespan="off"))
    serving = threading.Thread(target=server.run)
    up = threading.Event()
    startup = server.startup

    async def tell(*arguments: Any, **named: Any) -> None:
        await startup(*arguments, **named)
        up.set()

    server.startup = tell  # type: ignore[method-assign]
    serving.start()
    assert up.wait(60)
    yield f"http://127.0.0.1:{port}{PREFIX}"
    server.should_exit = True
    serving.join(60)


def photograph(seen: Any, picture: str) -> None:
    """Write a screenshot of a page's screen, or of an element, to ONLYONCE_SCREENSHOTS, if it is set."""
    if picture and (folder := os.environ.get("ONLYONCE_SCREENSHOTS")):
        seen.screenshot(path=str(Path(folder) / f"{picture}.png"))


@pytest.fixture
def show(browser: Any, address: str, token: Token, tmp_path: Path) -> Iterator[Open]:
    """Opens a page of ours as a user who is logged in; screenshots go to ONLYONCE_SCREENSHOTS, if it is set."""
    contexts = []

    def show(path: str, width: int = 1200, scheme: str = "light", picture: str = "") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        context.add_cookies([{"name": "_token", "value": token("USER"), "url": address}])
        page = context.new_page()
        page.goto(address + path)
        photograph(page.locator("body"), picture)
        return page

    events(tmp_path)
    yield show
    for context in contexts:
        context.close()


@pytest.mark.parametrize("width", [390, 1200])
def test_no_page_is_wider_than_the_screen(shop: Shop, show: Open, width: int) -> None:
    """Wide tables scroll by themselves; what a person reads never does."""
    wide = {}
    for path in PATHS:
        page = show(path, width, picture=f"{width}{path.replace('/', '_').partition('?')[0]}")
        wide[path] = page.evaluate("document.documentElement.scrollWidth")

    assert {path: w for path, w in wide.items() if w > width} == {}


@pytest.mark.parametrize("width", [280, 390, 1400])
def test_search_button_is_whole_and_figures_keep_their_units(shop: Shop, show: Open, width: int) -> None:
    """On a phone too, where Airflow's menu leaves 280 pixels or so."""
    page = show("/", width, picture=f"{width}_overview")
    box = page.get_by_role("button", name="Search").bounding_box()
    assert max(box["x"] + box["width"], page.evaluate("document.documentElement.scrollWidth")) <= width
    cut = "button => button.scrollWidth > button.clientWidth"
    assert not page.get_by_role("button", name="Search").evaluate(cut)

    lines = "all => all.map(one => [one.innerText, one.getClientRects()[0].height / parseFloat(getComputedStyle(one).fontSize)])"
    broken = [
        text for text, high in page.eval_on_selector_all("dd[data-figure], figcaption span, .badge", lines) if high > 2
    ]
    assert broken == []


def test_empty_database_is_said_in_a_sentence(show: Open) -> None:
    """Before the first run. No table is empty."""
    page = show("/", picture="empty")
    assert "No pipeline has run yet" in page.locator("main").inner_text()
    assert page.locator("table").count() == 0


@pytest.mark.parametrize(("width", "picture"), [(1200, "unread"), (390, "narrow")])
def test_unread_input_of_each_source_is_seen(
    log: Log, shop: Shop, show: Open, monkeypatch: pytest.MonkeyPatch, width: int, picture: str
) -> None:
    """Also on a phone: the table is as wide as its frame, and scrolls there."""
    now = datetime.now(UTC)
    oldest = now - timedelta(minutes=19)
    store(log, bytes=30_900_000, records=205_000, oldest_unread_at=oldest)
    found = answer("receive", backlog_bytes=31_400_000, backlog_records=208_000, catch_up_seconds=340)
    found |= {"asked_at": now.isoformat(), "oldest_unread_at": oldest.isoformat()}
    asker, waiting = unread.Asker(), unread.Waiting()
    monkeypatch.setattr(unread, "ASKER", asker)
    monkeypatch.setattr(unread, "WAITING", waiting)
    monkeypatch.setattr(unread, "COMMAND", (sys.executable, "-c", f"input(); print({json.dumps([found])!r})"))
    page = show("/pipelines/shop", width)
    frame = page.locator("iframe.unread")
    frame.scroll_into_view_if_needed()
    row = frame.content_frame.locator("tr[data-source='receive']")
    sync_api.expect(row).to_contain_text("31.4 MB", timeout=60_000)
    page.get_by_text("How far each stage is behind").evaluate("heading => heading.scrollIntoView()")
    photograph(page, picture)

    left = "one => one.getBoundingClientRect().left"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert frame.evaluate(left) == page.locator("article").evaluate(left)
    assert frame.content_frame.locator(".scroll").evaluate(left) == 0
    assert asker.requests["shop"].ended.wait(60)
    waiting.end()


def luminance(page: Any, selector: str, what: str) -> float:
    """How bright a colour is, from 0 to 1, as WCAG counts it."""
    color = page.eval_on_selector(selector, f"element => getComputedStyle(element).{what}")
    parts = [int(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3]]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_colour_schemes(shop: Shop, show: Open, scheme: str) -> None:
    """The ground follows the scheme, and words stand out from it by WCAG's 4.5 to 1."""
    page = show("/", scheme=scheme, picture=f"overview_{scheme}")
    show("/pipelines/shop", scheme=scheme, picture=f"pipeline_{scheme}")
    assert (luminance(page, "body", "backgroundColor") < 0.1) == (scheme == "dark")
    for selector, ground in [
        ("dd", ".card"),
        ("dt", ".card"),
        (".badge.conserved", ".badge.conserved"),
        ("footer", "body"),
        ("h2 a", ".card"),
    ]:
        lights = sorted([luminance(page, selector, "color"), luminance(page, ground, "backgroundColor")])
        assert (lights[1] + 0.05) / (lights[0] + 0.05) >= 4.5, selector


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_broken_books_are_red_and_kept_ones_green(shop: Shop, show: Open, scheme: str) -> None:
    """In colour and in words, with the batch that a person must look at."""

    def tint(page: Any, selector: str) -> str:
        color = page.eval_on_selector(selector, "element => getComputedStyle(element).color")
        red, green, _ = (int(part) for part in color[color.index("(") + 1 : -1].split(",")[:3])
        return "red" if red > green else "green"

    assert tint(show("/", scheme=scheme), ".badge.conserved") == "green"
    shop.break_books()
    page = show("/", scheme=scheme, picture=f"broken_{scheme}")
    assert tint(page, ".badge.broken") == "red"
    assert page.locator(".badge.conserved").count() == 0
    assert page.get_by_role("link", name="shop/receive/1/119").count() == 1


def test_the_search_box_leads_to_a_record_and_on_to_its_batch(shop: Shop, show: Open) -> None:
    """By the keyboard; the box keeps what was asked."""
    page = show("/")
    page.get_by_label("What became of record X?").fill("shop=north sale=1")
    page.keyboard.press("Enter")
    page.locator("[data-record]").wait_for()
    assert page.get_by_label("What became of record X?").input_value() == "shop=north sale=1"
    page.get_by_role("link", name="shop/receive/1/3").click()
    page.get_by_text("Its units").wait_for()
    assert page.locator("[data-unit]").count() == 2


def test_a_reader_finds_each_batch_by_links_alone(shop: Shop, show: Open) -> None:
    """Overview, pipeline, its batches, older ones."""
    page = show("/")
    page.get_by_role("link", name="shop", exact=True).click()
    page.get_by_role("link", name="shop/receive/1", exact=True).first.click()
    page.get_by_role("link", name="Older").click()
    page.locator("[data-batch='70']").wait_for()
    assert page.locator("[data-batch]").count() == 50


def test_nothing_is_loaded_but_the_page_and_no_rule_of_it_is_broken(shop: Shop, show: Open) -> None:
    """No other host, no script, and no word of the browser about the page's own security policy."""
    page = show("/")
    told: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: told.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    page.reload()

    assert told == []
    assert [url for url in asked if not url.endswith("favicon.ico")] == [page.url]


def test_late_answer_is_shown_without_a_reload(
    shop: Shop, show: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frame of unread input loads itself again while the process that asks goes on."""
    may_answer = tmp_path / "may answer"
    line = json.dumps([answer("receive", backlog_bytes=30)])
    code = f"""
import pathlib, sys, time
sys.stdin.readline()
while not pathlib.Path({str(may_answer)!r}).exists():
    time.sleep(0.05)
print({line!r})
"""
    asker, waiting = unread.Asker(), unread.Waiting()
    monkeypatch.setattr(unread, "ASKER", asker)
    monkeypatch.setattr(unread, "WAITING", waiting)
    monkeypatch.setattr(unread, "COMMAND", (sys.executable, "-c", code))
    page = show("/pipelines/shop")
    frame = page.locator("iframe.unread")
    frame.scroll_into_view_if_needed()
    row = frame.content_frame.locator("tr[data-source=receive]")
    sync_api.expect(row).to_contain_text("no answer within 2 s", timeout=60_000)
    may_answer.touch()
    sync_api.expect(row).to_contain_text("30 B", timeout=60_000)
    assert asker.requests["shop"].ended.wait(60)
    waiting.end()
