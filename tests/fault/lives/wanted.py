"""What must come of a case, by a plain batch computation over its distinct input, and what is there."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd

from onlyonce import settings
from onlyonce.sinks.files import finalize
from tests.fault.lives.cases import Case
from tests.spark.sinks.test_sinks import sessions, sliding
from tests.support import shop_oracle
from tests.support.platform import Platform

Rows = Counter[tuple[Any, ...]]
Records = list[dict[str, Any]]
NUMBERS = ("cents", "sales")


def batches(case: Case) -> tuple[list[Records], Records]:
    """The files of a case, one batch each; and records that are invalid, until a reprocessing takes them in."""
    files = shop_oracle.sales(90, 3, seed=case.seed)
    if case.life == "planned":  # whether late rows are in is a matter of when each window was made again
        files = [[record for record in records if _near(record)] for records in files]
    if case.life != "reprocess":
        return files, []
    ahead = datetime.now(UTC).replace(microsecond=0) + timedelta(days=3)
    return files, [
        {
            "id": f"ahead{n}",
            "shop": f"shop-{n}",
            "at": f"{ahead + timedelta(seconds=40 * n):%Y-%m-%dT%H:%M:%SZ}",
            "cents": n,
            "weight": 1.0,
        }
        for n in range(6)
    ]


def of_batch(case: Case, files: list[Records]) -> list[Rows]:
    """The rows of each output of the case: of `out`, and of the output that it is made from."""
    records = shop_oracle.distinct(files)
    if case.life == "planned":
        records["cents"] *= 2
    sent = case.sink == "outbox"  # what was sent stays as the stream made it
    folded = case.life in ("backfill", "recompute")
    if case.kind == "made":
        return [_rows(case, records, folded=folded and not sent), _shops(_in_time(records, folded=folded))]
    return [_rows(case, records, folded=folded and not sent)]


def of_platform(platform: Platform, case: Case) -> list[Rows]:
    """The same as its readers see it."""
    columns = {
        "raw": ("window_start", "id", "shop", "cents"),
        "plain": ("id", "shop", "cents"),
        "totals": ("shop", *NUMBERS),
    }
    chosen = columns.get(case.kind, ("window_start", "shop", *NUMBERS))
    if case.kind == "made":
        chosen = ("window_start", *NUMBERS)
    elif case.way in ("increment", "latest"):
        chosen = ("shop", *NUMBERS)
    found = [_counted(_there(platform, case), chosen)]
    if case.kind == "made":
        found.append(_counted(platform.table("shop/root"), ("window_start", "shop", *NUMBERS)))
    return found


def _rows(case: Case, records: pd.DataFrame, *, folded: bool) -> Rows:
    if case.kind in ("plain", "totals"):
        folded = True  # without a window nothing is late
    if case.kind == "sliding":
        found = _of_tuples(sliding(records, in_time=not folded))
    elif case.kind == "session":
        found = _of_tuples(sessions(records, in_time=not folded))
    else:
        records = _in_time(records, folded=folded)
        found = _shops(records)
    if case.way == "latest":
        last = {shop: (start, shop, *sums) for start, shop, *sums in sorted(found)}
        return Counter(row[1:] for row in last.values())
    if case.way == "increment" and case.kind != "made":
        return _sums(found)
    if case.kind == "totals":
        return _sums(found)
    if case.kind == "made":
        return _counted(shop_oracle.total(records), ("window_start", *NUMBERS))
    if case.kind in ("raw", "plain"):
        return _counted(
            records, ("window_start", "id", "shop", "cents") if case.kind == "raw" else ("id", "shop", "cents")
        )
    return found


def _in_time(records: pd.DataFrame, *, folded: bool) -> pd.DataFrame:
    return records if folded else records[~records["late"]]


def _shops(records: pd.DataFrame) -> Rows:
    return _counted(shop_oracle.per_shop(records), ("window_start", "shop", *NUMBERS))


def _sums(rows: Rows) -> Rows:
    cents, sales = Counter[str](), Counter[str]()
    for (_, shop, of_cents, of_sales), times in rows.items():
        cents[shop] += of_cents * times
        sales[shop] += of_sales * times
    return Counter((shop, cents[shop], sales[shop]) for shop in sales)


def _of_tuples(rows: Counter[Any]) -> Rows:
    return Counter({(_micros(start), *rest): times for (start, *rest), times in rows.items()})


def _there(platform: Platform, case: Case) -> pd.DataFrame:
    of = case.sink.split()[0]
    if of == "delta":
        return platform.table("shop/out")
    if of == "outbox":
        payloads = platform.sql("SELECT payload FROM onlyonce.outbox WHERE output = 'out'")["payload"]
        return pd.DataFrame([json.loads(payload) for payload in payloads])
    if of == "files":
        return _read_files(platform)
    url = platform.environment["TEST_OTHER_DATABASE"] if of == "other" else None
    return platform.sql("SELECT * FROM results.out", url=url)


def _read_files(platform: Platform) -> pd.DataFrame:
    """The files that a reader is to read; of several panes of a window the last one, where they are early."""
    finalize.main([])
    there = platform.sql(
        "SELECT place, name FROM onlyonce.output_files WHERE state = 'final' AND output = 'out' ORDER BY name"
    )
    rows = []
    for place, name in there.itertuples(index=False):
        lines = (settings.files_dir() / place / name).read_text().splitlines()
        rows += [json.loads(line) | {"pane": int(name.split("-pane-")[1].split("-")[0])} for line in lines]
    found = pd.DataFrame(rows)
    if "shop" in found and "sales" in found:
        return found.sort_values("pane").drop_duplicates(["window_start", "shop"], keep="last")
    return found


def _counted(frame: pd.DataFrame, columns: tuple[str, ...]) -> Rows:
    if frame.empty:
        return Counter()
    return Counter(
        tuple(_plain(name, value) for name, value in zip(columns, row, strict=True))
        for row in frame[list(columns)].itertuples(index=False)
    )


def _plain(name: str, value: Any) -> Any:
    if name == "window_start":
        return _micros(value)
    return int(value) if name in NUMBERS else str(value)


def _micros(value: Any) -> int:
    at = pd.Timestamp(value)
    at = at.tz_localize("UTC") if at.tzinfo is None else at
    return int(at.as_unit("us").value)


def _near(record: dict[str, Any]) -> bool:
    number = int(record["id"][1:])
    behind = shop_oracle.START + timedelta(seconds=number * 2) - datetime.fromisoformat(record["at"])
    return behind < timedelta(seconds=60)
