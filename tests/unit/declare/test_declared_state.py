"""Outputs with state of their own as they are declared: what can't work is refused, and what has run under another
state is told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType, StructField, StructType

from onlyonce import (
    AfterRecords,
    Delta,
    Files,
    FileSink,
    Fixed,
    Join,
    Lookup,
    Output,
    Pipeline,
    Postgres,
    Session,
    Stateful,
)
from onlyonce.api import load
from onlyonce.api.outputs import what_to_do
from onlyonce.core.changes import Need, changes
from onlyonce.core.errors import Refused
from onlyonce.core.windows import Timed
from onlyonce.operate import plan
from onlyonce.outputs import backfill

MINUTE = timedelta(minutes=1)
STATE: Any = {
    "processor": f"{__name__}:Silence", "keys": "device", "schema": "device string, since timestamp", "timers_within": 30 * MINUTE,
}  # fmt: skip


class Silence(StatefulProcessor):
    """A processor."""

    def init(self, handle: Any) -> None:
        """Its state, in a declared order that says nothing."""
        self.count = handle.getValueState("count", StructType([StructField("n", LongType())]))
        self.seen = handle.getMapState("seen", "at long", "records LONG")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        """Nothing."""
        return iter([])

    def close(self) -> None:
        """Nothing."""


class Reordered(Silence):
    """The same state, asked for in another order."""

    def init(self, handle: Any) -> None:
        """The same."""
        handle.getMapState("seen", "at long", "records long")
        handle.getValueState("count", "n long")


class Wider(Silence):
    """Another state."""

    def init(self, handle: Any) -> None:
        """One more column."""
        handle.getValueState("count", "n long, m long")


class Mortal(Silence):
    """State that goes by the clock."""

    def init(self, handle: Any) -> None:
        """For a second."""
        handle.getListState("seen", "at long", ttlDurationMs=1000)


class Reading(Silence):
    """An init that does more."""

    def init(self, handle: Any) -> None:
        """Reads."""
        handle.getValueState("count", "n long").get()


class Needy(Silence):
    """It is not made without arguments."""

    def __init__(self, gap: int) -> None:
        self.gap = gap


def output(name: str = "silences", state: Any = None, **changed: Any) -> Output:
    """An output that is right but for what is changed."""
    plain: dict[str, Any] = {"stateful": Stateful(**STATE | (state or {})), "sink": Delta()}
    return Output(name=name, **plain | changed)


def pipeline(*outputs: Output) -> Pipeline:
    """A pipeline with these outputs."""
    return Pipeline(
        name="shop",
        source=Files(),
        schema="id string, device string, at timestamp",
        record_id="id",
        event_time="at",
        outputs=outputs,
    )


def sent(parts: dict[str, Any]) -> dict[str, Any]:
    """The same, as an output that sends its rows."""
    return {"outputs": {"silences": parts["outputs"]["silences"] | {"target": "kafka:silences"}}}


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "no bound": (lambda: Stateful(**{k: v for k, v in STATE.items() if k != "timers_within"}), "timers_within"),
    "a negative bound": (lambda: output(state={"timers_within": -MINUTE}), "timers_within=.* is negative"),
    "no whole bound": (lambda: output(state={"timers_within": timedelta(microseconds=1500)}), "parts of a millisecond"),
    "no key": (lambda: output(state={"keys": ()}), "Stateful: no keys"),
    "a key twice": (lambda: output(state={"keys": ("a", "a")}), "'a' is named twice"),
    "a key that is no column": (lambda: pipeline(output(state={"keys": "shop"})), "the key 'shop' is not a declared column"),
    "no class": (lambda: output(state={"processor": "Silence"}), "processor='Silence' is not of the form"),
    "no columns": (lambda: output(state={"schema": ""}), "schema has no column"),
    "no type": (lambda: output(state={"schema": "device text"}), "'text', which Spark does not have"),
    "a column twice": (lambda: output(state={"schema": "a int, A int"}), "the column 'A' twice"),
    "our prefix": (lambda: output(state={"schema": "oo_n int"}), "'oo_' is the platform's prefix"),
    "a window": (lambda: output(state={"schema": "window_start timestamp"}), "the platform's name for the window"),
    "a transform": (lambda: output(transform="m:f"), "Stateful and transform"),
    "from another": (lambda: output(from_output="other"), "Stateful and from_output"),
    "lookups": (lambda: output(lookups=Lookup(name="l", table=Delta(path="l"), keys="k")), "Stateful and lookups"),
    "rejections": (lambda: output(reject="m:f"), "Stateful and reject"),
    "a join": (lambda: output(join=Join(left="m:f", right="m:g", on="k", within=MINUTE)), "Stateful and join"),
    "sessions": (lambda: output(window=Session(MINUTE)), "not Session"),
    "early panes": (lambda: output(panes="early"), "gives rows as its processor does"),
    "a trigger": (lambda: output(panes=AfterRecords(3)), "gives rows as its processor does"),
    "late rows included": (lambda: output(late="backfill"), "can't be computed again"),
    "a backfill": (lambda: output(on_backfill="skip"), "no backfill computes it"),
    "an upsert of any row": (lambda: output(sink=Delta(write="upsert", keys="device")), "nothing says which is the newest"),
    "a history": (lambda: output(sink=Postgres(table="r.t", write="history", keys="device", sequence_by="since")), "does more"),
    "delete_when": (lambda: output(sink=Postgres(table="r.t", write="upsert", keys="device", sequence_by="since", delete_when="gone")), "does more"),
    "an increment": (lambda: output(sink=Postgres(table="r.t", write="increment", keys="device")), "write='increment'. does more"),
    "files": (lambda: output(sink=FileSink(shards=1)), "does more"),
    "made from it": (
        lambda: pipeline(output(), Output(name="sums", transform="m:f", from_output="silences", sink=Delta())),
        "gives its rows as they come, and not by closed windows",
    ),
    "a processor that is none": (lambda: load.state(output(state={"processor": f"{__name__}:output"})), "is not a class of a StatefulProcessor"),
    "one that does not exist": (lambda: load.state(output(state={"processor": f"{__name__}:Silences"})), "the processor '.*' does not exist"),
    "one with arguments": (lambda: load.state(output(state={"processor": f"{__name__}:Needy"})), "Needy can't be made"),
    "a time to live": (lambda: load.state(output(state={"processor": f"{__name__}:Mortal"})), "'seen' has a time to live"),
    "an init that reads": (lambda: load.state(output(state={"processor": f"{__name__}:Reading"})), "the init of .*Reading fails"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_what_can_not_keep_a_state_is_refused_when_it_is_declared_or_looked_at(kind: str) -> None:
    """With what it is that does not go."""
    wrong, told = WRONG[kind]
    with pytest.raises(Refused, match=told):
        wrong()


def test_the_schema_of_the_state_is_found_by_the_processors_init_in_whatever_order_it_asks() -> None:
    """Types as Spark writes them."""
    assert load.state(output()) == "value count: n bigint\nmap seen: at bigint to records bigint"
    assert load.state(output(state={"processor": f"{__name__}:Reordered"})) == load.state(output())
    assert load.state(Output(name="rows", transform="m:f", sink=Delta())) == ""


def test_the_state_decides_the_fingerprint_and_another_one_needs_a_new_incarnation() -> None:
    """Another key, bound, schema, version, or another state of the processor."""
    others: tuple[dict[str, Any], ...] = (
        {"keys": ("device", "id")}, {"timers_within": MINUTE}, {"schema": "device string"}, {"state_version": 2},
        {"processor": f"{__name__}:Wider"}, {},
    )  # fmt: skip
    made = [pipeline(output(state=other)) for other in others]
    assert len({load.fingerprint(one, "silences") for one in made}) == len(others)
    now = load.parts(made[-1], "silences")
    for one in made[:-1]:
        assert {change.need for change in changes("silences", load.parts(one, "silences"), now)} <= {
            Need.INCARNATION,
            Need.NOTHING,
        }
        assert Need.INCARNATION in {change.need for change in changes("silences", load.parts(one, "silences"), now)}


def test_another_code_over_the_same_state_goes_on_and_a_changed_state_does_not() -> None:
    """By the parts that the log keeps."""
    now = load.parts(pipeline(output()), "silences")
    assert now["outputs"]["silences"]["state"] == load.state(output())
    other = {"outputs": {"silences": now["outputs"]["silences"] | {"source": "class Silence: pass"}}}
    assert [(change.part, change.need) for change in changes("silences", other, now)] == [
        ("function of output silences", Need.NOTHING)
    ]
    wider = {"outputs": {"silences": now["outputs"]["silences"] | {"state": "value count: n bigint, m bigint"}}}
    [changed] = changes("silences", wider, now)
    assert (changed.part, changed.before, changed.need) == (
        "state of output silences",
        "value count: n bigint, m bigint",
        Need.INCARNATION,
    )
    [changed] = changes("silences", sent(wider), sent(now))
    assert changed.need is Need.NAME
    without = {
        "outputs": {
            "silences": {
                part: told for part, told in now["outputs"]["silences"].items() if part not in ("stateful", "state")
            }
        }
    }
    assert {change.need for change in changes("silences", without, now)} == {Need.NAME}


def test_a_changed_state_plans_a_new_incarnation_from_the_start() -> None:
    """As a command of its own, whatever has changed."""
    now = load.parts(pipeline(output(watermark_delay=MINUTE)), "silences")
    found = changes("silences", load.parts(pipeline(output()), "silences"), now)
    step = plan.reset_step("shop", output(watermark_delay=MINUTE), found, 0, 1)
    assert step is not None
    assert (step.command, step.start) == ("onlyonce reset shop/silences --yes", {})


def test_an_output_without_state_has_no_word_of_it() -> None:
    """In the parts of its identity."""
    plain = Output(name="rows", transform=f"{__name__}:output", sink=Delta())
    assert not {"stateful", "state"} & set(load.parts(pipeline(plain), "rows")["outputs"]["rows"])


def test_records_are_counted_by_the_declared_windows_or_by_hours_and_no_row_is_by_windows() -> None:
    """With the bound of the timers."""
    assert output().window == Timed(60 * MINUTE, within=30 * MINUTE)
    assert output(window=Fixed(MINUTE)).window == output(window=output(window=Fixed(MINUTE)).window).window
    assert not output().has_windows


def test_a_backfill_leaves_it_out_and_refuses_it_by_name() -> None:
    """With why, and what to do."""
    by_windows = Output(name="rows", transform="m:f", window=Fixed(MINUTE), sink=Delta())
    assert backfill.chosen(pipeline(output(), by_windows), None) == [by_windows]
    for refused in (lambda: backfill.chosen(pipeline(output(), by_windows), "silences"), lambda: what_to_do(output())):
        with pytest.raises(Refused, match="has a state of its own") as told:
            refused()
        assert "onlyonce reset PIPELINE/silences --yes" in str(told.value.hint)
