"""A pipeline over files that grow, on Spark: appended to, rotated, cut and killed, each line is one record."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.database.connect import Database
from onlyonce.records import trace as tracing
from onlyonce.sources.record_id import asked
from tests.support import shop_oracle
from tests.support.check_shop import check_outputs
from tests.support.platform import Platform, multiset

pytestmark = pytest.mark.spark

GROWN = "tests/support/grown_shop.py"


def text(records: list[dict[str, Any]]) -> bytes:
    """As lines."""
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def append(path: Path, data: bytes) -> None:
    """As a logger does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)


def check(platform: Platform, batches: list[list[dict[str, Any]]], *, invalid: int = 0, suffix: str = "") -> None:
    """Each line is kept once, each output is the batch computation, the log is conserved."""
    records = shop_oracle.every(batches)
    events = platform.events("shop" + suffix)
    kept = events[events["oo_kind"] == "kept"]
    assert multiset(records, "id", "shop", "cents") == multiset(kept, "id", "shop", "cents")
    places = Counter(map(tuple, kept[["oo_high", "oo_low"]].itertuples(index=False)))
    assert len(places) == len(kept)
    assert (events["oo_kind"] == "invalid").sum() == invalid
    check_outputs(platform, records if suffix else records[~records["late"]], suffix)
    log = platform.sql(f"SELECT * FROM onlyonce.conservation WHERE instance = 'shop{suffix}'")
    assert log["conserved"].all()
    assert log[log["query"] == "receive"]["records_in"].sum() == len(records) + invalid


def test_a_log_that_grows_is_rotated_and_is_cut(new_platform: Callable[..., Platform], spark: object) -> None:
    """Half lines wait; a rotation between two runs loses nothing; a file cut in place is invalid once; a bounded run
    agrees."""
    platform = new_platform(GROWN)
    log = settings.inbox("shop") / "app.log"
    first, second, third = shop_oracle.sales(180, 3, duplicates=0.2)
    half = len(text(second)) // 2
    append(log, text(first) + text(second)[:half])
    whole = text(second)[:half].count(b"\n")
    platform.run("shop")
    append(log, text(second)[half:])
    log.rename(log.with_name("app.log.1"))
    append(log, text(third))
    append(settings.inbox("shop") / "empty.log", b"no line yet")
    platform.run("shop", "--close")

    check(platform, [first + second[:whole], second[whole:] + third])
    database = Database(settings.database_url())
    second_line = str(text(first).index(b"\n") + 1)
    for name, seen in (("app.log.1", True), ("app.log.2", False)):
        _, found = tracing.trace(
            database, declarations.load()["shop"], "shop", asked(declarations.load()["shop"], [name, second_line])
        )
        assert found is seen, name

    platform.run("shop", "--bounded")
    check(platform, [first + second + third], suffix="@1")

    with log.open("r+b") as file:
        file.truncate(len(text(third[:1])))
    platform.run("shop", "--close")
    check(platform, [first + second[:whole], second[whole:] + third], invalid=1)
    [reason] = platform.events()["oo_reason"].dropna()
    assert "cut short or rewritten in place" in reason


CHAIN = [
    "receive-registered", "receive-before-begin", "receive-after-begin", "receive-after-delta", "receive-after-control",
    "receive-before-end", "receive-after-end",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.fault
def test_kills_do_not_show(new_platform: Callable[..., Platform], spark: object) -> None:
    """SIGKILL at each step of receive, the log appended to and rotated between them; then the same command: each line
    once."""
    platform = new_platform(GROWN)
    log = settings.inbox("shop") / "app.log"
    parts = shop_oracle.sales(80 * len(CHAIN), len(CHAIN), duplicates=0.2)

    for number, (point, records) in enumerate(zip(CHAIN, parts, strict=True)):
        append(log, text(records)[:-7])
        code, output = platform.run_killed(point, "shop")
        assert platform.struck(point) >= 1, f"{point} was never passed:\n{output[-3000:]}"
        assert code == -signal.SIGKILL, f"{point}: exit {code}\n{output[-3000:]}"
        append(log, text(records)[-7:])
        if number % 2:
            log.rename(log.with_name(f"app.log.{number}"))
    platform.run("shop", "--bounded")
    check(platform, [[record for part in parts for record in part]], suffix="@1")
    platform.run("shop", "--close")

    events = platform.events()
    kept = events[events["oo_kind"] == "kept"]
    assert multiset(shop_oracle.every(parts), "id", "shop", "cents") == multiset(kept, "id", "shop", "cents")
