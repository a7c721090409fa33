"""What a starting driver and `onlyonce plan` make of the log: on the real PostgreSQL, without Spark."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Delta, Files, Output, Pipeline
from onlyonce.commitlog import batches, incarnations, units
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.incarnations import Declarations, Declared, Incarnations
from onlyonce.commitlog.units import Units
from onlyonce.core.batch import Batch
from onlyonce.core.errors import Refused
from onlyonce.core.frontier import Frontier
from onlyonce.core.units import Content, UnitId
from onlyonce.core.windows import Fixed
from onlyonce.database.connect import Database
from onlyonce.database.statements import make_home
from onlyonce.operate import plan
from onlyonce.run import reset
from tests.contract.conftest import Log, plan_of
from tests.contract.shop import Shop, at
from tests.contract.shop import shop as at_work  # noqa: F401 - a fixture
from tests.support import shop

MINUTE = timedelta(minutes=1)
START = datetime(2026, 1, 1, tzinfo=UTC)
SHOP = shop.SHOP
WIDER = replace(SHOP, outputs=(replace(SHOP.outputs[0], window=Fixed(2 * MINUTE)), *SHOP.outputs[1:]))
ELSEWHERE = replace(SHOP, outputs=(replace(SHOP.outputs[0], sink=Delta(path="elsewhere")), *SHOP.outputs[1:]))


def declared_as(pipeline: Pipeline, query: str) -> Declared:
    """What a driver keeps when it starts."""
    return Declared("shop", query, declarations.fingerprint(pipeline, query), declarations.parts(pipeline, query))


def start(log: Log, pipeline: Pipeline, query: str) -> incarnations.Driver:
    """A driver starts under a declaration, as `RunContext.open_query` does."""
    driver = log.start(query=query)
    live = Incarnations(log.database).live("shop", query)
    assert live is not None
    Declarations(log.database).go_on(live, declared_as(pipeline, query))
    return driver


def ran(log: Log, pipeline: Pipeline, query: str, *, windows: int = 0) -> None:
    """A query has begun a batch under a declaration, and written the first windows."""
    driver = start(log, pipeline, query)
    meant = plan_of(driver, declaration_hash=declarations.fingerprint(pipeline, query))
    Batches(log.database).begin(driver, "shop", meant, None)
    written = [
        {"rows": 1, "window_start": START + n * MINUTE, "window_end": START + (n + 1) * MINUTE} for n in range(windows)
    ]
    batch = Batch(meant, Frontier(), 0, "begun", replayed=False)
    made = pa.Table.from_pylist(written, batches.WRITTEN)
    Batches(log.database).add_panes(batch, "shop", query, made, final=True)


@pytest.fixture
def planned(log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Pipeline], plan.Plan]:
    """The plan of a declaration, by this log."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    make_home()
    return lambda pipeline: plan.made(Database(log.url), pipeline)


def everything(log: Log) -> None:
    """The pipeline has run as `tests/support/shop.py` declares it."""
    for query in ("receive", "per_shop", "balance"):
        ran(log, SHOP, query, windows=0 if query == "receive" else 3)


def test_a_driver_that_can_t_go_on_is_refused_and_keeps_nothing(log: Log) -> None:
    """Before its first statement; what can go on is kept, once for each fingerprint."""
    ran(log, SHOP, "per_shop")
    with pytest.raises(Refused, match="window of output per_shop"):
        start(log, WIDER, "per_shop")
    start(log, ELSEWHERE, "per_shop")
    start(log, ELSEWHERE, "per_shop")

    kept = log.rows("SELECT hash FROM onlyonce_private.declarations WHERE query = 'per_shop'")
    assert Counter(kept) == Counter((declarations.fingerprint(p, "per_shop"),) for p in (SHOP, ELSEWHERE))


def test_what_was_not_kept_can_t_stop_a_run(log: Log) -> None:
    """A query that ran before declarations were kept goes on, and is compared from then on."""
    ran(log, SHOP, "per_shop")
    log.rows("DELETE FROM onlyonce_private.declarations")
    start(log, WIDER, "per_shop")


def test_a_new_name_of_a_pipeline_that_has_run_is_warned_of_until_it_runs(log: Log) -> None:
    """Unless the old one is still declared, or each reads its default inbox, which are two folders."""
    old = replace(SHOP, source=Files(inbox="/in"))
    ran(log, old, "receive")
    new, known = replace(old, name="mill"), Declarations(log.database)

    [told] = known.renamed(new, {"mill"})
    assert re.search("mill has not run, and reads the source of shop, .*: put name='shop' back", told)
    assert known.renamed(new, {"mill", "shop"}) == known.renamed(replace(SHOP, name="mill"), {"mill"}) == []
    assert known.renamed(old, {"shop"}) == []


def test_what_is_as_it_ran_needs_nothing(log: Log, planned: Callable[[Pipeline], plan.Plan]) -> None:
    """No change, no step; nor for a pipeline that never ran."""
    assert planned(SHOP) == plan.Plan("shop", [], [], [], [])
    everything(log)
    assert planned(SHOP) == plan.Plan("shop", [], [], [], [])


def test_the_plan_of_changed_windows_is_a_new_incarnation_a_run_and_a_backfill(
    log: Log, planned: Callable[[Pipeline], plan.Plan]
) -> None:
    """The incarnation begins with the first window that is whole behind the last one written; the backfill goes up to
    there."""
    everything(log)
    found = planned(WIDER)
    first = START + 4 * MINUTE
    assert [step.kind for step in found.todo] == ["incarnation", "run", "backfill"]
    assert found.todo[0].start == {"first_window": int(first.timestamp()) * 1_000_000}
    assert found.todo[2].arguments[1:] == (
        "--output", "per_shop", "--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T00:04:00Z",
    )  # fmt: skip


def test_a_plan_that_was_carried_out_half_way_says_what_is_left(
    log: Log, planned: Callable[[Pipeline], plan.Plan]
) -> None:
    """After the new incarnation: its first run, and the backfill up to where that incarnation begins."""
    everything(log)
    todo = planned(WIDER).todo
    log.rows("UPDATE onlyonce_private.incarnations SET state = 'closed' WHERE query = 'per_shop'")
    Incarnations(log.database).register("shop", "per_shop", uuid4(), todo[0].start)
    assert [step.kind for step in planned(WIDER).todo] == ["run", "backfill"]
    assert planned(WIDER).todo[-1] == todo[-1]


def test_a_batch_that_is_half_written_ends_as_it_was_declared_before_anything_is_done(
    log: Log, planned: Callable[[Pipeline], plan.Plan]
) -> None:
    """Without a unit it begins again; a new incarnation withdraws it, unless readers have seen of it; what has not changed has
    nothing to end."""
    ran(log, SHOP, "per_shop")
    ran(log, SHOP, "balance")
    assert planned(ELSEWHERE).half_written == []
    claimed = units.Claim(UnitId("shop/per_shop/1", 0, "per_shop", 0), 1, "driver", "reference")
    Units(log.database).claim(claimed)

    assert planned(ELSEWHERE).half_written == [
        "batch shop/per_shop/1/0 is half written: 1 of its units are committed under declaration "
        f"{declarations.fingerprint(SHOP, 'per_shop')}"
    ]
    assert [planned(pipeline).half_written for pipeline in (WIDER, SHOP)] == [[], []]

    seen = UnitId("shop/balance/1", 0, "balance", 0)
    Units(log.database).claim(units.Claim(seen, 1, "driver", "data"))
    Units(log.database).fill(seen, Content(3, "c0ffee"))
    wider = replace(SHOP, outputs=(*SHOP.outputs[:2], replace(SHOP.outputs[2], window=Fixed(2 * MINUTE))))
    assert [text.split(":")[0] for text in planned(wider).half_written] == ["batch shop/balance/1/0 is half written"]


def test_outputs_that_come_and_go_are_told(log: Log, planned: Callable[[Pipeline], plan.Plan]) -> None:
    """A new one starts with the next run; one that is gone needs nothing; one whose declaration was not kept is
    said."""
    everything(log)
    log.rows("DELETE FROM onlyonce_private.declarations WHERE query = 'receive'")
    new = Output(name="new", transform=SHOP.outputs[0].transform, window=shop.MINUTE, sink=Delta())
    other = replace(SHOP, outputs=(*SHOP.outputs[:2], new), record_id=("id", "shop"))
    found = planned(other)
    told: Counter[Any] = Counter((change.part, str(change.need)) for change in found.found)
    assert told == Counter([("output balance", "nothing"), ("output new", "nothing")])
    assert [step.kind for step in found.todo] == ["run"]
    assert ["was not kept" in text for text in found.unknown] == [True]


def test_plan_and_new_incarnation_say_their_cost(at_work: Shop) -> None:  # noqa: F811
    """How many rows are read again, and what readers see meanwhile, by the log."""
    at_work.receive(("a", at(0)), ("b", at(0.5)))
    at_work.output(opens=(at(0),))
    at_work.receive(("c", at(5)), ("d", at(5.5)), ("e", at(6)))
    at_work.output(closes=(at(0),), opens=(at(5),))
    at_work.receive(("not read yet", at(7)))

    facts = [reset.new(f"shop/{query}").facts for query in ("receive", "per_shop", "balance")]
    assert [fact["rows read again"] for fact in facts] == [0, 3, 0]
    assert all(fact["readers"].startswith("no gap: ") for fact in facts)

    incarnation, run, backfill = plan.made(at_work.log.database, replace(at_work.pipeline, outputs=WIDER.outputs)).todo
    assert [step.rows_again for step in (incarnation, run, backfill)] == [3, None, 1]
    assert "start before 2026-01-01T00:02:00Z stay as they are" in str(incarnation.readers)
    assert str(backfill.readers).startswith("no gap: ")
    *_, backfill = plan.made(at_work.log.database, replace(at_work.pipeline, outputs=ELSEWHERE.outputs)).todo
    assert str(backfill.readers).startswith("a gap: the target of output per_shop ")
