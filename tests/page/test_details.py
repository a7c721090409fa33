"""What the page tells of single files and records: those that are not final, those that came too late."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from fastapi.testclient import TestClient

from onlyonce.airflow.page import find
from tests.page.conftest import PREFIX
from tests.page.shop import DAY, HOUR, Shop
from tests.page.test_page import get

FILES = """
INSERT INTO onlyonce_private.files (instance, output, incarnation, batch_id, partition, window_start, window_end, shard, shards, generation,
    pane, place, temporary, name, rows, bytes, checksum, finalized_at)
SELECT 'shop', 'per_shop', 'shop/per_shop/1', 0, 0, w.at, w.at + interval '1 h', shard, 2,
    CASE WHEN kind <> 'begun' THEN 0 END, CASE WHEN kind <> 'begun' THEN 1 END, 'shop', kind || '-' || n || '-' || shard,
    kind || '-' || n || '-' || shard || CASE WHEN kind = 'begun' THEN '{pane}' ELSE '' END, 5, 100, 'x',
    CASE WHEN kind = 'final' THEN now() END
FROM (VALUES ('final', 0), ('waits', 1000), ('begun', 2000)) kinds (kind, days), generate_series(1, 40) n, generate_series(0, 1) shard,
    LATERAL (SELECT timestamptz '2026-03-01Z' + days * interval '1 day' + n * interval '1 h' AS at) w
"""


def test_files_that_wait_are_shown_and_no_others(shop: Shop, client: TestClient) -> None:
    """The first of them on the pipeline's page, all behind its link, each once; a file that is final is none of them,
    nor one whose batch is not committed."""
    assert "not final" not in get(client, "/pipelines/shop")
    shop.log.rows(FILES)
    page = get(client, "/pipelines/shop")
    first = re.findall(r'data-file="([^"]+)"', page)
    assert f'href="{PREFIX}/pipelines/shop/files"' in page
    shown: list[str] = []
    following = "/pipelines/shop/files"
    while following:
        html = get(client, following)
        shown += re.findall(r'data-file="([^"]+)"', html)
        more = re.search(r'rel="next" href="([^"]+)"', html)
        following = unescape(more[1]).removeprefix(PREFIX) if more else ""

    assert shown == [f"waits-{n}-{shard}" for n in range(1, 41) for shard in range(2)]
    assert first == shown[:5]


def late_events(home: Path, late: int, in_time: int) -> None:
    """The table `events` with records of one minute: those behind a frontier of an hour later, and those before it was
    there."""
    at = DAY + HOUR
    frontier = {"max_event_time": at + HOUR, "ended": None, "silent_max_event_time": None, "silent_clock": None}
    none = dict.fromkeys(frontier)
    kinds = [("late", frontier)] * late + [("early", none)] * in_time
    records: list[dict[str, Any]] = [
        {
            "id": f"{kind}-{n:03}", "oo_kind": "kept", "oo_event_time": at + timedelta(seconds=n % 60), "oo_frontier": known,
            "oo_incarnation": "shop/receive/1", "oo_batch": 3,
        } for n, (kind, known) in enumerate(kinds)
    ]  # fmt: skip
    time = pa.timestamp("us", tz="UTC")
    schema = pa.schema([
        ("id", pa.string()), ("oo_kind", pa.string()), ("oo_event_time", time), ("oo_frontier", pa.struct([(n, time) for n in frontier])),
        ("oo_incarnation", pa.string()), ("oo_batch", pa.int64()),
    ])  # fmt: skip
    path = home / "data" / "shop" / "events"
    write_deltalake(str(path), pa.Table.from_pylist(records, schema=schema), partition_by=["oo_kind"])


def test_the_records_that_came_too_late_are_shown(
    shop: Shop, client: TestClient, tmp_path: Path, declared: None
) -> None:
    """Below the windows: the first of them with their ids, window and batch, and how many there are; none that was in
    time."""
    late_events(tmp_path, late=30, in_time=40)
    html = get(client, "/pipelines/shop/late", output="per_shop")
    shown = re.findall(r"<tr data-record>\s*<td>id=([\w-]+) ", html)

    assert len(shown) == len(set(shown)) == 20
    assert {one for one in shown if not one.startswith("late-")} == set()
    assert "20 of 30." in html
    assert html.count(">shop/receive/1/3</a>") == 20


def test_late_records_of_another_output_are_not_shown(
    shop: Shop, client: TestClient, tmp_path: Path, declared: None
) -> None:
    """An output that the declaration does not have any more, or that has no window, has none."""
    late_events(tmp_path, late=3, in_time=0)
    assert "data-record" not in get(client, "/pipelines/shop/late", output="total")


@pytest.mark.parametrize("why", ["no table", "no declaration", "too many"])
def test_records_that_cannot_be_looked_at_are_said_to_be(
    shop: Shop, client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: None, why: str
) -> None:
    """The windows are there all the same, and the word says where to look."""
    if why != "no table":
        late_events(tmp_path, late=3, in_time=0)
    if why == "no declaration":
        monkeypatch.setenv("ONLYONCE_PIPELINES", str(tmp_path / "none.py"))
    if why == "too many":
        monkeypatch.setattr(find, "MOST_RECORDS", 2)
    html = get(client, "/pipelines/shop/late", output="per_shop")
    words = {
        "no table": "can&#39;t be seen from here",
        "no declaration": "no file with declarations",
        "too many": "too many",
    }

    assert words[why] in html
    assert "onlyonce late shop" in html
    assert "data-window" in html
    assert "data-record" not in html


PARTS = """
INSERT INTO onlyonce_private.states (incarnation, operator, kind, batch_id, rows_in, rows_out, rows, timers_set, timers_ended, disk_bytes, memory_bytes)
VALUES ('shop/per_shop/1', 0, 'symmetricHashJoin', 117, 12, 5, 4711, NULL, NULL, 2048, 4096),
       ('shop/per_shop/1', 1, 'transformWithStateInPandasExec', 117, 3, 1, NULL, 8, 6, 1024, 4096);
INSERT INTO onlyonce_private.panes (instance, output, window_start, window_end, generation, final, rows, incarnation, batch_id, declaration_hash, held, held_since)
VALUES ('shop', 'per_shop', '2026-05-01', '2026-05-01 01:00', 0, false, 2, 'shop/per_shop/1', 117, 'd', 17, '2026-05-01 00:30');
INSERT INTO onlyonce_private.declarations (instance, query, hash, parts)
SELECT 'shop', 'per_shop', b.declaration_hash, '{"outputs": {"per_shop": {"from_output": "events"}, "total": {"from_output": "per_shop"}}}'
FROM onlyonce_private.batches b WHERE b.incarnation = 'shop/per_shop/1' ORDER BY batch_id DESC LIMIT 1;
UPDATE onlyonce_private.batches SET rejected = 3 WHERE incarnation = 'shop/per_shop/1' AND batch_id = 117;
INSERT INTO onlyonce_private.rejected (instance, output, event_time, oo_high, oo_low, received_as, received_in, reason, rows, incarnation, batch_id)
SELECT 'shop', 'per_shop', timestamptz '2026-03-02' + n * interval '1 min', n, n, 'shop/receive/1', 3, CASE WHEN n = 1 THEN '<b>odd</b>' ELSE 'no price' END, 1,
    'shop/per_shop/1', 117
FROM generate_series(1, 3) n;
UPDATE onlyonce_private.batches SET source_to = source_to || '{"version": 7, "newest": 9, "schemas": {"value": [3, 4], "key": []}}'
WHERE incarnation = 'shop/receive/1' AND batch_id = 119;
UPDATE onlyonce_private.batches SET source_to = source_to || '{"schemas": {"value": [3], "key": []}}' WHERE incarnation = 'shop/receive/1' AND batch_id = 118;
UPDATE onlyonce_private.pipelines SET log_kept_from = '2026-02-03 04:05Z';
UPDATE onlyonce_private.units SET snapshot_id = 8712345 WHERE unique_id = 'shop/per_shop/1/117/per_shop/0';
"""


def test_what_only_some_pipelines_have_is_told_and_of_others_nothing(shop: Shop, client: TestClient) -> None:
    """Sources with version and schemas, chains, state, windows that wait for a pane, reasons, from when on the log is
    whole, snapshots."""
    plain = get(client, "/pipelines/shop")
    marks = ("data-source", "data-output", "data-state", "data-held", "data-reason", "data-kept-from", "data-schemas")
    assert [mark for mark in marks if mark in plain] == []
    shop.log.rows(PARTS)
    page = get(client, "/pipelines/shop")

    def row(mark: str) -> str:
        [found] = re.findall(rf"<tr {mark}>.*?</tr>", page)
        return re.sub(r"(<[^>]*>)+", "|", found)

    assert "|7 of 9|3, 4|shop/receive/1/119|" in row('data-source="shop"')
    assert "value 3 in 2, last in batch 119; value 4 in 1, last in batch 119." in page
    assert row('data-output="total"').startswith("|total|per_shop|the query of per_shop|0|")
    assert row('data-output="per_shop"').startswith("|per_shop|events|its own query|2|")
    states = re.findall(r'<tr data-state="per_shop">.*?</tr>', page)
    told = [re.sub(r"(<[^>]*>)+", "|", one) for one in states]
    assert told[0].startswith("|per_shop|join|4,711|12|5|–|–|2.0 kB|4.1 kB|117|")
    assert told[1].startswith("|per_shop|processor|–|3|1|8|6|1.0 kB|4.1 kB|117|")
    assert "|2|17|2026-05-01 00:30:00|" in row('data-held="[^"]*"')
    assert re.findall(r'<tr data-reason="([^"]*)">', page) == ["no price", "&lt;b&gt;odd&lt;/b&gt;"]
    assert "2026-02-03 04:05" in page.partition("data-kept-from")[2][:200]
    assert "snapshot 8712345" in get(client, "/batches", incarnation="shop/per_shop/1", batch="117")
