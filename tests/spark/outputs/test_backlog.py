"""What waits for an output is read in bounded batches of whole commits; the results are those of any other cut."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from onlyonce import settings
from onlyonce.failpoints import FailPoint
from onlyonce.operate import audit, compact
from onlyonce.outputs import query as outputs_query
from onlyonce.run import reset
from tests.spark.operate.test_compaction import compact_and_forget
from tests.spark.run.test_long_run import check, quick, sales, windows
from tests.support import shop_oracle
from tests.support.long_run import READ_UPTO, committed, meanwhile, until
from tests.support.platform import ROOT, Platform, multiset

pytestmark = pytest.mark.spark

SHOPS = ["window_start", "shop", "sales", "cents"]


def commits_of(platform: Platform, query: str) -> list[int]:
    """How many batches of receive and closes each batch of an output's first incarnation has read, in order."""
    found = platform.sql(f"""
        SELECT o.batch_id, o.source_to->>'index' AS index, {READ_UPTO} AS upto
        FROM onlyonce_private.batches o JOIN onlyonce_private.incarnations l USING (incarnation)
        WHERE l.query = '{query}' AND l.ordinal = 1 ORDER BY l.ordinal, o.batch_id""")
    assert set(found["index"]) == {"-1"}, "between two commits"
    received = platform.sql("""SELECT delta_version AS version FROM onlyonce_private.batches WHERE delta_version IS NOT NULL
                               AND incarnation LIKE '%/receive/%' UNION ALL SELECT delta_version FROM onlyonce_private.watermark_markers""")
    upto = [-1, *found["upto"]]
    return [sum(after < version <= last for version in received["version"]) for after, last in pairwise(upto)]


def test_what_waits_is_cut_into_whole_commits_and_a_kill_between_two_parts_does_not_show(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """Of several files each, with a compaction between them, another bound after the kill, and a new incarnation that comes to
    where the first one was in several batches.

    No part has more commits than the bound, each record is counted once, and the results are the batch oracle's."""
    platform = new_platform("tests/support/before_compaction.py")
    platform.give(monkeypatch, ONLYONCE_OUTPUT_BATCH_COMMITS="2", ONLYONCE_IN_DRIVER_BYTES="0")
    files = shop_oracle.sales(240, 12)
    for number, records in enumerate(files[:3]):
        platform.put("shop", f"{number:02}.jsonl", records)
    platform.run("shop")
    assert compact.main(["shop"]).tables["own tables"][0]["new files"]
    for number, records in enumerate(files[3:], 3):
        platform.put("shop", f"{number:02}.jsonl", records)
    passed: list[str] = []

    def killed(name: str) -> None:
        passed.append(name)
        if name == "output-after-begin" and passed.count(name) == 3:
            raise FailPoint(name)

    with monkeypatch.context() as armed:
        armed.setattr(outputs_query, "passing", killed)
        with pytest.raises(FailPoint):
            platform.run("shop")
    platform.give(monkeypatch, ONLYONCE_OUTPUT_BATCH_COMMITS="3")
    platform.run("shop")
    reset.new("shop/per_shop", yes=True)
    platform.give(monkeypatch, ONLYONCE_OUTPUT_BATCH_COMMITS="1")
    platform.run("shop", "--close")

    for query in ("per_shop", "each"):
        found = commits_of(platform, query)
        assert sum(found) == len(files) + (query == "each")
        assert max(found) <= 3, found
        assert found.count(0) <= 2, "the windows that the last rows have closed"
    records = shop_oracle.distinct(files)
    in_time = shop_oracle.per_shop(records[~records["late"]])
    assert multiset(in_time, *SHOPS) == multiset(platform.table("shop/per_shop"), *SHOPS)
    assert multiset(records, "id") == multiset(platform.sql("SELECT id FROM results.each"))
    assert audit.main(["--data"]).warnings == []


def test_an_output_of_a_long_run_that_falls_behind_is_cut_too(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """Its query ends between two batches, and stays up again once the rest fits."""
    platform = quick(new_platform("tests/support/quiet.py"), monkeypatch)
    platform.give(monkeypatch, ONLYONCE_OUTPUT_BATCH_COMMITS="2")
    held: list[str] = []

    def slow(name: str) -> None:
        if name == "output-after-begin" and not held:
            held.append(name)
            until(lambda: committed(platform) >= 4, "four batches of receive beside one of the output")

    def feed() -> None:
        for block in range(5):
            before = committed(platform)
            platform.put("shop", f"sales-{block}.jsonl", sales(block))
            until(lambda n=before: committed(platform) > n, "the batch of receive")  # type: ignore[misc]
        until(lambda: windows(platform) == 15, "the output")

    monkeypatch.setattr(outputs_query, "passing", slow)
    with meanwhile(platform, feed):
        platform.run("shop", "--continuous", "--every", "0.2")
    platform.run("shop")

    assert max(commits_of(platform, "per_shop")) <= 3
    check(platform, 5)


@pytest.mark.whole
def test_a_first_reading_of_what_is_compacted_is_cut_into_whole_commits_and_no_kill_shows(
    new_platform: Callable[..., Platform], monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """New outputs begin over a table whose old commits, files and log entries are gone.

    Each of them is killed in its second batch of each run; between the runs come new input, a compaction and a new incarnation
    of one output. The results are the batch oracle's."""
    platform = new_platform("tests/support/before_compaction.py")
    files = shop_oracle.sales(120, 9)
    for number, records in enumerate(files[:5]):
        platform.put("shop", f"{number:02}.jsonl", records)
    platform.run("shop")
    compact_and_forget(settings.data_dir("shop"), "events")
    for number, records in enumerate(files[5:7], 5):
        platform.put("shop", f"{number:02}.jsonl", records)
    platform.run("shop")
    platform.give(monkeypatch, ONLYONCE_OUTPUT_BATCH_BYTES="1", ONLYONCE_OUTPUTS_AT_ONCE="1")
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(ROOT / "tests/support/after_compaction.py"))
    met: list[str] = []
    for number, place in enumerate(("output-after-begin", "output-before-end"), 7):

        def killed(name: str, place: str = place) -> None:
            met.append(name)
            if name == place and met.count(name) % 2 == 0:
                raise FailPoint(name)

        with monkeypatch.context() as armed:
            armed.setattr(outputs_query, "passing", killed)
            with pytest.raises(FailPoint):
                platform.run("shop")
        met.clear()
        platform.put("shop", f"{number:02}.jsonl", files[number])
        compact.main(["shop"])
    reset.new("shop/per_shop_later", yes=True)
    platform.run("shop", "--close")

    assert len(commits_of(platform, "each_later")) >= 3
    records = shop_oracle.distinct(files)
    in_time = shop_oracle.per_shop(records[~records["late"]])
    assert multiset(in_time, *SHOPS) == multiset(platform.table("shop/per_shop_later"), *SHOPS)
    assert multiset(records, "id") == multiset(platform.sql("SELECT id FROM results.each_later"))
    parts = platform.sql("""SELECT l.query, count(*) AS parts FROM onlyonce_private.batches b JOIN onlyonce_private.incarnations l USING (incarnation)
                            WHERE b.source_to ? 'first_reading' GROUP BY 1""")
    assert min(parts["parts"]) >= 3
    assert set(parts["query"]) == {"per_shop_later", "each_later"}
    assert audit.main(["--data"]).warnings == []
