"""A living pipeline changes: what `onlyonce plan` says is what happens, and one command does it; `onlyonce reprocess`."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onlyonce import failpoints
from onlyonce.core.errors import Refused
from onlyonce.core.runs import Interrupted
from onlyonce.operate import plan
from onlyonce.outputs import reprocess
from tests.support.changes import SCHEMA, declare, output, sale, wanted
from tests.support.platform import Platform, multiset

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FIRST, SECOND = [sale(n) for n in range(24)], [sale(n) for n in range(24, 40)]
LOCAL = ["--master", "local[2]"]


def table(platform: Platform, *values: str) -> Counter[Any]:
    """What a reader of the output sees."""
    found = multiset(platform.table("shop/sums"), "window_start", "shop", *values)
    return Counter({(row[0].to_pydatetime(), *row[1:]): n for row, n in found.items()})


def started(platform: Platform, monkeypatch: pytest.MonkeyPatch, declared: str) -> None:
    """The pipeline has run once as it was declared first; some windows are closed, some open."""
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(declare(platform.home, declared)))
    platform.put("shop", "a.jsonl", FIRST)
    platform.run("shop")


def steps() -> list[str]:
    """The commands that the plan names."""
    return [step["command"] for step in plan.main(["shop"]).tables["steps"]]


def apply() -> Any:
    """`onlyonce plan shop --yes`."""
    return plan.main(["shop", "--yes", *LOCAL])


def test_a_new_column_and_a_changed_function_are_refused_planned_and_done(
    platform: Platform, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that would die in Spark is refused first. Then one command, and each window is of the new function."""
    started(platform, monkeypatch, output("sums"))
    before = table(platform, "cents", "sales")
    second = [one | {"colour": "red"} for one in SECOND]
    platform.put("shop", "b.jsonl", second)
    declare(platform.home, output("coloured"), SCHEMA + ", colour string")

    with pytest.raises(Refused, match="function of output sums") as refused:
        platform.run("shop")
    assert "onlyonce plan shop" in refused.value.hint
    assert table(platform, "cents", "sales") == before
    assert len(platform.events().query("oo_kind == 'kept'")) == len(FIRST)
    needs = {row["what"]: row["needs"] for row in plan.main(["shop"]).tables["changes"]}
    assert needs["function of output sums"] == "a new incarnation, a backfill"
    assert [command.split()[1] for command in steps()] == ["reset", "run", "backfill"]

    report = apply()
    assert report.warnings == []
    platform.run("shop", "--close")

    def value(sales: list[dict[str, Any]]) -> tuple[int, int, int]:
        return sum(s["cents"] for s in sales), len(sales), sum("colour" in s for s in sales)

    assert table(platform, "cents", "sales", "coloured") == wanted(FIRST + second, 1, value)
    assert steps() == []
    events = platform.events()
    assert multiset(events[events["oo_kind"] == "kept"], "id", "colour") == Counter(
        (one["id"], one.get("colour")) for one in FIRST + second
    )
    assert platform.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty


def test_windows_of_another_size_take_the_place_of_the_old_ones(
    platform: Platform, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left alone, Spark would write windows of both sizes.

    After the plan there are those of the new size, each whole.
    """
    started(platform, monkeypatch, output("sums"))
    platform.put("shop", "b.jsonl", SECOND)
    declare(platform.home, output("sums", "window=Fixed(2 * MINUTE), watermark_delay=MINUTE, sink=Delta()"))

    apply()
    platform.run("shop", "--close")
    apply()

    def value(sales: list[dict[str, Any]]) -> tuple[int, int]:
        return sum(s["cents"] for s in sales), len(sales)

    assert table(platform, "cents", "sales") == wanted(FIRST + SECOND, 2, value)
    assert steps() == []
    assert platform.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty


def test_plan_that_ctrl_c_ends_names_what_is_left(
    platform: Platform, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one reports its run as `run` does."""
    started(platform, monkeypatch, output("sums"))
    platform.put("shop", "b.jsonl", [*SECOND, {"id": None}])
    declare(platform.home, output("sums", "window=Fixed(2 * MINUTE), watermark_delay=MINUTE, sink=Delta()"))

    def strike(name: str, _: str) -> None:
        raise KeyboardInterrupt(name)

    with monkeypatch.context() as armed:
        armed.setattr(failpoints, "_POINTS", {"start-instance": (1, "raise")})
        armed.setattr(failpoints, "_strike", strike)
        armed.setenv("ONLYONCE_FAILPOINT_DIR", str(platform.home))
        with pytest.raises(Interrupted) as ended:
            apply()
    report = ended.value.report

    assert report.title == "shop: stopped by Ctrl-C: 1 of the plan's 3 steps are done"
    assert [row["left"].split()[1] for row in report.tables["left"]] == ["run", "backfill"]
    assert report.warnings[-1].endswith("`onlyonce plan shop --yes` then does only the steps that are left")
    again = apply()
    assert [(row["kept"], row["invalid"]) for row in again.tables["fates"] if row["query"] == "receive"] == [
        (len(SECOND), 1)
    ]
    assert any("invalid" in warning for warning in again.warnings)
    assert "left" not in again.tables


def test_a_changed_type_is_refused_before_anything_is_read(
    platform: Platform, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`events` has one type for a column: the run and the plan's --yes refuse, and say to take another name."""
    started(platform, monkeypatch, output("sums"))
    platform.put("shop", "b.jsonl", SECOND)
    declare(platform.home, output("sums"), SCHEMA.replace("weight double", "weight string"))

    for attempt in (lambda: platform.run("shop"), apply):
        with pytest.raises(Refused, match="column weight of"):
            attempt()

    declare(platform.home, output("sums"), SCHEMA.replace("weight double", "weight_text string"))
    platform.run("shop")
    assert len(platform.events().query("oo_kind == 'kept'")) == len(FIRST + SECOND)


EXACT = [
    ("exact", "ü🛒 \"quoted\" \\ back", "2026-01-01T00:00:00.123456Z", 2**62, 0.1 + 0.2),
    ("without", None, "1970-01-01T00:00:00.000001Z", None, None),
    ("zone", "b", "2026-01-01T02:00:00+02:00", -1, 1e-300),
]  # fmt: skip


def lines_of(*records: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Records with every kind of value; null columns left out."""
    names = ("id", "shop", "at", "cents", "weight")
    return [{k: v for k, v in zip(names, one, strict=True) if v is not None} for one in records]


def test_reprocessed_rows_are_kept_once_with_their_exact_values(
    platform: Platform, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invalid by a bound that was wrong, and expired records: taken in again, but for those that are kept already; again,
    nothing."""
    plain = output("rows", "sink=Delta()")
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(declare(platform.home, plain)))
    ahead = (datetime.now(UTC) + timedelta(days=3)).isoformat()
    invalid = [sale(1, at=ahead), sale(2, at=ahead), sale(2, at=ahead)]
    platform.put("shop", "a.jsonl", [*FIRST[:2], *invalid, "{"])
    platform.run("shop")
    floor = "UPDATE onlyonce_private.pipelines SET gc_floor = {} RETURNING 1"
    platform.sql(floor.format(2**40))
    platform.put("shop", "b.jsonl", [*lines_of(*EXACT), FIRST[0], sale(9, unknown="field")])
    platform.run("shop")
    platform.sql(floor.format(0))
    assert len(platform.events().query("oo_kind == 'expired'")) == 5

    with pytest.raises(Refused, match="invalid again"):
        reprocess.main(["shop", "--invalid", "--yes", *LOCAL])
    declare(platform.home, plain, more="max_ahead=timedelta(days=9)")
    for kind in ("--invalid", "--expired"):
        report = reprocess.main(["shop", kind, "--yes", *LOCAL])
        assert report.facts["kept already, left out"] == 1
    assert report.facts["lines"] == 4
    platform.run("shop")
    for kind in ("--invalid", "--expired"):
        reprocess.main(["shop", kind, "--reason", "horizon", "--yes", *LOCAL])
    platform.run("shop")

    def micros(at: str) -> int:
        return (datetime.fromisoformat(at) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    kept = [*FIRST[:2], sale(2, at=ahead), sale(9), *lines_of(*EXACT)]
    names = ("id", "shop", "cents", "weight")
    assert multiset(platform.table("shop/sums"), *names, "at") == Counter(
        (*(one.get(name) for name in names), micros(one["at"])) for one in kept
    )
    events = platform.events()
    assert multiset(events[events["oo_kind"] == "invalid"], "oo_raw")[("{",)] == 2
    assert set(events[events["oo_unknown"].notna()]["id"]) == {"s9"}
    reprocessings = platform.sql(
        "SELECT kind, state, lines, left_out, taken_in_by FROM onlyonce.reprocessings ORDER BY reprocessing_no"
    )
    assert multiset(reprocessings, "kind", "state", "lines", "left_out") == Counter(
        {("invalid", "reprocessed", 3, 1): 1, ("expired", "reprocessed", 4, 1): 1}
    )
    assert reprocessings["taken_in_by"].notna().all()
    assert platform.sql("SELECT * FROM onlyonce.conservation WHERE conserved IS NOT TRUE").empty
