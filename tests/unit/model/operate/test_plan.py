"""What a change of a declaration needs: the comparison in parts, the table, and the steps that follow. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onlyonce.api.identity import mode, output_parts
from onlyonce.api.identity import receive_parts as of_identity
from onlyonce.api.pipeline import Delta, Files, FileSink, Output, Pipeline, Postgres, Sink
from onlyonce.commitlog.incarnations import Made
from onlyonce.core.changes import (
    CONSEQUENCES,
    Change,
    Need,
    changes,
    check_goes_on,
    check_next_incarnation,
    mixes,
    no_step,
)
from onlyonce.core.errors import Refused, Retryable
from onlyonce.core.windows import Fixed, Session, Sliding, first_start, micros
from onlyonce.operate.plan import Plan, Step, backfill_step, reset_step, run_step, stopped_at

MINUTE = timedelta(minutes=1)
SOURCE = "def f(rows):\n    return rows.groupBy('oo_window').count()\n"
UPSERT = Delta(write="upsert", keys=("window_start",))
SUMS = Postgres(table="a.b", write="increment", keys=("shop",))


def output(name: str = "sums", **changed: Any) -> Output:
    plain: dict[str, Any] = {"transform": "m:f", "sink": Delta(), "window": Fixed(MINUTE), "watermark_delay": MINUTE}
    return Output(name=name, **plain | changed)


def pipeline(*outputs: Output, **changed: Any) -> Pipeline:
    plain: dict[str, Any] = {
        "source": Files(), "schema": "id string, at timestamp, made timestamp, cents long", "record_id": ("id",), "event_time": "at",
    }  # fmt: skip
    return Pipeline(name="shop", outputs=outputs or (output(),), **plain | changed)


def receive_parts(pipeline: Pipeline) -> dict[str, Any]:
    """As `onlyonce plan` compares it: with the mode, which a batch row has."""
    return of_identity(pipeline) | {"mode": mode(pipeline)}


def of_receive(**changed: Any) -> list[tuple[str, Need]]:
    found = changes("receive", receive_parts(pipeline()), receive_parts(pipeline(**changed)))
    return [(change.part, change.need) for change in found]


def parts(*outputs: Output, source: str = SOURCE) -> dict[str, Any]:
    return output_parts(pipeline(*outputs), outputs[0].name, {o.name: source for o in outputs})


def of_output(before: Output, after: Output, **options: Any) -> list[tuple[str, Need]]:
    found = changes("sums", parts(before), parts(after), **options)
    return [(change.part, change.need) for change in found]


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({}, []),
        ({"schema": "id string, at  TIMESTAMP, made timestamp, cents bigint"}, []),
        ({"partitions": 7}, []),
        ({"idle_after": MINUTE}, []),
        ({"dedup_horizon": 2 * MINUTE}, []),
        ({"schema": "id string, at timestamp, made timestamp, cents long, more map<string, long>"}, [("column more", Need.NOTHING)]),
        ({"schema": "id string, at timestamp, cents long"}, [("column made", Need.NOTHING)]),
        ({"schema": "cents long, id string, at timestamp, made timestamp"}, []),
        ({"schema": "id string, at timestamp, made timestamp, cents int"}, [("column cents", Need.NAME)]),
        ({"record_id": ("id", "cents")}, [("record_id", Need.NOTHING)]),
        ({"record_id": ()}, [("record_id", Need.NAME)]),
        ({"source": Files(format="csv", header=True)}, [("format", Need.NAME)]),
        ({"event_time": "made"}, [("event_time", Need.NAME)]),
        ({"max_ahead": MINUTE}, [("max_ahead", Need.NOTHING)]),
        ({"mode": "at_least_once"}, [("mode", Need.NOTHING)]),
        ({"source": Files(inbox="/elsewhere", max_files_a_batch=2)}, [("inbox", Need.NOTHING), ("max_files_a_batch", Need.NOTHING)]),
    ],
)  # fmt: skip
def test_a_change_of_receive_needs_what_is_stated(changed: dict[str, Any], wanted: list[tuple[str, Need]]) -> None:
    """Each option of a pipeline by itself; how a schema is written is no difference."""
    assert of_receive(**changed) == wanted


def test_a_switch_to_exactly_once_says_that_the_catalog_is_made_first() -> None:
    """The mode is no part of the identity: a batch row has it."""
    loose, strict = receive_parts(pipeline(mode="at_least_once")), receive_parts(pipeline())
    [change] = changes("receive", loose, strict)

    assert (change.before, change.after, change.need) == ("at_least_once", "exactly_once", Need.NOTHING)
    assert "before its first batch the next run puts the ids" in change.why
    assert of_identity(pipeline(mode="at_least_once")) == of_identity(pipeline())


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ({}, {"window": Fixed(2 * MINUTE)}, [("window of output sums", Need.BOTH)]),
        ({}, {"window": Sliding(2 * MINUTE, MINUTE)}, [("window of output sums", Need.BOTH)]),
        ({}, {"window": Session(MINUTE)}, [("window of output sums", Need.NAME)]),
        ({"window": Session(MINUTE)}, {"window": Session(2 * MINUTE)}, [("window of output sums", Need.NAME)]),
        ({}, {"window": None, "watermark_delay": timedelta(0)}, [("window of output sums", Need.NAME), ("watermark_delay of output sums", Need.INCARNATION)]),
        ({}, {"watermark_delay": 2 * MINUTE}, [("watermark_delay of output sums", Need.INCARNATION)]),
        ({"window": Session(MINUTE)}, {"window": Session(MINUTE), "watermark_delay": 2 * MINUTE}, [("watermark_delay of output sums", Need.NAME)]),
        ({"sink": UPSERT}, {"sink": UPSERT, "panes": "early"}, [("panes of output sums", Need.INCARNATION)]),
        ({"sink": UPSERT, "panes": "early"}, {"sink": UPSERT, "panes": "early", "window": Fixed(2 * MINUTE)}, [("window of output sums", Need.NAME)]),
        ({}, {"sink": Delta(path="elsewhere")}, [("target of output sums", Need.BACKFILL)]),
        ({}, {"sink": Postgres(table="a.b", write="upsert", keys=("window_start",))}, [("target of output sums", Need.BACKFILL)]),
        ({}, {"sink": UPSERT}, [("write of output sums", Need.NAME), ("keys of output sums", Need.NAME)]),
        ({}, {"late": "backfill", "on_backfill": "skip"}, [
            ("late of output sums", Need.NOTHING), ("on_backfill of output sums", Need.NOTHING),
        ]),
        ({"sink": SUMS, "on_backfill": "skip"}, {"sink": SUMS, "on_backfill": "correct"}, [("on_backfill of output sums", Need.NAME)]),
        ({}, {"transform": "other:g"}, []),
    ],
)  # fmt: skip
def test_a_change_of_an_output_needs_what_is_stated(
    before: dict[str, Any], after: dict[str, Any], wanted: list[tuple[str, Need]]
) -> None:
    """Each option of an output by itself; a function that has moved and is the same is no difference."""
    assert of_output(output(**before), output(**after)) == wanted


@pytest.mark.parametrize(
    ("before", "after", "stateless", "need"),
    [
        ({}, {"panes": "at_close"}, True, Need.NAME),
        ({}, {"panes": "at_close"}, False, Need.INCARNATION),
        ({"panes": "at_close"}, {}, True, Need.INCARNATION),
        ({}, {"sink": FileSink()}, True, Need.NAME),
        ({"sink": FileSink()}, {}, True, Need.NAME),
        ({"sink": FileSink()}, {}, False, Need.BACKFILL),
        ({"sink": FileSink(), "panes": "at_close"}, {"panes": "at_close"}, True, Need.BACKFILL),
    ],
)
def test_rows_that_come_with_their_records_and_whole_windows_do_not_share_a_table(
    before: dict[str, Any], after: dict[str, Any], stateless: bool, need: Need
) -> None:
    """Without a state the rows of open windows are written, unless the windows wait for their close."""
    [change] = changes("sums", parts(output(**before)), parts(output(**after)), stateless=stateless)

    assert change.need is need


@pytest.mark.parametrize(
    ("options", "stateless", "need"),
    [
        ({}, False, Need.BOTH),
        ({}, True, Need.BACKFILL),
        ({"window": Session(MINUTE)}, False, Need.NAME),
        ({"window": None, "watermark_delay": timedelta(0)}, True, Need.NOTHING),
        ({"window": None, "watermark_delay": timedelta(0), "panes": "early", "sink": UPSERT}, False, Need.INCARNATION),
    ],
)
def test_a_changed_function_needs_a_new_incarnation_only_where_it_has_state(
    options: dict[str, Any], stateless: bool, need: Need
) -> None:
    """Without state each row is of the function that saw it; with it, open windows hold what the old one left."""
    root = output(**options)
    found = changes("sums", parts(root), parts(root, source=SOURCE.replace("count", "sum")), stateless=stateless)
    assert [(change.part, change.need) for change in found] == [("function of output sums", need)]
    assert found[0].diff == (
        "@@ -2 +2 @@\n-    return rows.groupBy('oo_window').count()\n+    return rows.groupBy('oo_window').sum()"
    )
    assert (found[0].before, found[0].after) == (None, None)


@pytest.mark.parametrize("lines", [1, 30])
def test_a_refused_run_shows_how_the_function_differs(lines: int) -> None:
    """The error has the diff, but only its first lines if it is long; the plan has them all."""
    longer = SOURCE + "".join(f"    step({n})\n" for n in range(lines))
    with pytest.raises(Refused) as refused:
        check_goes_on("shop/sums/1", changes("sums", parts(output()), parts(output(), source=longer)))

    first, *shown = refused.value.what.splitlines()
    assert first == (
        "function of output sums of shop has changed, and incarnation shop/sums/1 has run under the old one. "
        "The lines that differ:"
    )
    assert shown[1] == "+    step(0)"
    assert shown[-1] == ("+    step(0)" if lines == 1 else "… 11 more lines: onlyonce plan shop")


@pytest.mark.parametrize(
    "source",
    ["def f(rows):\n    # why\n    return rows.groupBy(\n        'oo_window'\n    ).count()\n", 'def f(rows):\n    """Says."""\n' + SOURCE[13:]],
)  # fmt: skip
def test_layout_comments_and_docstrings_are_no_change(source: str) -> None:
    """Only what Python runs is compared."""
    assert changes("sums", parts(output()), parts(output(), source=source)) == []


def test_an_output_made_from_another_comes_and_goes_without_its_root() -> None:
    """It shares the root's state, so its coming needs a backfill at most and its going nothing."""
    made = Output(name="all", transform="m:g", from_output="sums", sink=Delta())
    alone, both = parts(output()), parts(output(), made)
    assert [(c.part, c.need) for c in changes("sums", alone, both)] == [("output all", Need.BACKFILL)]
    assert [(c.part, c.need) for c in changes("sums", both, alone)] == [("output all", Need.NOTHING)]


def test_a_result_without_windows_comes_without_what_was_before() -> None:
    """No backfill could make it: it needs nothing."""
    root = Output(name="sums", transform="m:f", sink=Delta())
    alone, both = parts(root), parts(root, Output(name="odd", from_output="sums", sink=Delta()))
    assert [(c.part, c.need) for c in changes("sums", alone, both)] == [("output odd", Need.NOTHING)]


def test_a_run_stops_only_where_two_declarations_would_mix() -> None:
    """A new incarnation or another name stops it, with the command; the rest passes."""
    for kind, (need, why) in CONSEQUENCES.items():
        change = Change("sums", kind, "a", "b", need, why)
        if not need.stops:
            check_goes_on("shop/sums/1", [change])
            continue
        with pytest.raises(Refused, match="shop/sums/1") as refused:
            check_goes_on("shop/sums/1", [change])
        assert ("--yes" in refused.value.hint) == (need is not Need.NAME)
        with pytest.raises(Refused, match="shop/sums/1") as refused:
            check_goes_on("shop/sums/1", [change], invalid_lost=0)
        assert ("onlyonce drop shop --tables" in refused.value.hint) == (need is Need.NAME)


def test_another_name_comes_before_a_new_incarnation() -> None:
    """A check names the change that no new incarnation allows, and a plan then has no step."""
    function = Change("sums", "function of output sums", None, None, *CONSEQUENCES["transform"], diff="-a\n+b")
    window = Change("sums", "window of output sums", "1 hour", "none", *CONSEQUENCES["window or none"])
    sink = Change("sums", "sink of output sums", "append", "upsert", *CONSEQUENCES["sink"])

    with pytest.raises(Refused, match=r"^window of output sums of shop has changed \(1 hour → none\)") as refused:
        check_goes_on("shop/sums/1", [function, window, sink])

    assert "put it back" in refused.value.hint
    assert no_step("shop", [function], None) is None
    assert str(no_step("shop", [function, window, sink], None)).startswith(
        "no step can be done until window of output sums and sink of output sums of shop are put back: "
    )
    assert "onlyonce drop shop --tables" in str(no_step("shop", [function, window], 0))


def test_a_run_warns_of_what_mixes_results_of_two_declarations() -> None:
    """A backfill is needed, or re-deliveries count twice; the rest needs no word."""
    found = {kind for kind, (need, why) in CONSEQUENCES.items() if mixes(Change("receive", kind, "a", "b", need, why))}

    assert found == {kind for kind, (need, _) in CONSEQUENCES.items() if need is Need.BACKFILL} | {"record_id"}


@pytest.mark.parametrize("kind", CONSEQUENCES)
def test_new_incarnation_is_refused_if_another_name_is_needed(kind: str) -> None:
    """It would write rows of a new declaration next to rows of the old one."""
    need, why = CONSEQUENCES[kind]
    change = Change("sums", kind, "a", "b", need, why)
    if need is not Need.NAME:
        check_next_incarnation("shop/sums/1", [change])
        return
    with pytest.raises(Refused, match="shop/sums/1") as refused:
        check_next_incarnation("shop/sums/1", [change])
    assert why[1:] in refused.value.data
    assert "another name" in refused.value.hint


START = datetime(2026, 1, 1, tzinfo=UTC)
ZERO = micros(START - datetime(1970, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("window", "minutes", "wanted"),
    [
        (Fixed(2 * MINUTE), 3, 4),
        (Fixed(2 * MINUTE), 4, 4),
        (Sliding(4 * MINUTE, 2 * MINUTE), 3, 4),
        (Sliding(4 * MINUTE, 2 * MINUTE), 4, 4),
        (Fixed(4 * MINUTE, offset=MINUTE), 2, 5),
    ],
)  # fmt: skip
def test_a_new_incarnation_begins_with_the_first_window_that_holds_nothing_from_before(
    window: Fixed | Sliding, minutes: int, wanted: int
) -> None:
    """Windows that reach over the last written one are left to a backfill: the new incarnation would not see them whole."""
    at = ZERO + micros(minutes * MINUTE)
    first = first_start(window, at)
    assert first == ZERO + micros(wanted * MINUTE)
    assert all(start >= at for start, _ in window.assign(first) if start >= first)


def test_the_new_incarnation_of_each_change_starts_where_it_must() -> None:
    """A changed window after the last written one, a changed watermark delay after its start, totals from the beginning."""
    last = (ZERO + micros(2 * MINUTE), ZERO + micros(3 * MINUTE))

    def start(before: Output, after: Output, **options: Any) -> dict[str, Any] | None:
        step = reset_step("shop", after, changes("sums", parts(before), parts(after, **options)), *last)
        return step.start if step else None

    assert start(output(), output(window=Fixed(2 * MINUTE))) == {"first_window": ZERO + micros(4 * MINUTE)}
    assert start(output(), output(watermark_delay=2 * MINUTE)) == {"first_window": last[0] + 1}
    assert start(output(panes="at_close"), output()) == {"rows_from": 0, "first_window": last[0] + 1}
    assert start(output(), output(), source=SOURCE + "x = 1\n") == {}
    assert start(output(), output(sink=Delta(path="elsewhere"))) is None
    totals = output(window=None, watermark_delay=timedelta(0), panes="early", sink=UPSERT)
    assert start(totals, totals, source=SOURCE + "x = 1\n") == {"version": 0}


def test_only_windows_that_an_older_declaration_made_are_recomputed() -> None:
    """One backfill from the first to the last of them; none for windows of this declaration, or of one with the same
    results."""
    old, now = parts(output()), parts(output(), source=SOURCE.replace("count", "sum"))
    other = parts(output(late="backfill"), source=SOURCE.replace("count", "sum"))

    def windows(hash_: str, made_under: dict[str, Any] | None, first: int, last: int) -> Made:
        return Made(hash_, made_under, START + first * MINUTE, START + last * MINUTE, START + (last + 1) * MINUTE)

    made = [windows("h1", old, 3, 7), windows("h2", other, 0, 9), windows("h3", now, 8, 20), windows("h4", None, 0, 30)]
    step = backfill_step("shop", output(), "h3", now, made, None)
    assert step is not None
    assert step.arguments == (
        "shop",
        "--output",
        "sums",
        "--from",
        "2026-01-01T00:03:00Z",
        "--to",
        "2026-01-01T00:08:00Z",
    )
    assert backfill_step("shop", output(), "h3", now, made[1:], None) is None
    wider = backfill_step("shop", output(), "h3", now, made, ZERO + micros(10 * MINUTE))
    assert wider is not None
    assert wider.arguments[-1] == "2026-01-01T00:10:00Z"


def test_options_that_a_later_version_adds_are_no_change() -> None:
    """A window is told without its defaults, so that an upgrade of the platform needs nothing."""
    told = parts(output())["outputs"]["sums"]["window"]
    assert told == {"kind": "fixed", "size": "0:01:00"}
    assert parts(output(window=Fixed(MINUTE, timezone="UTC")))["outputs"]["sums"]["window"] == told


def test_every_sink_is_told_apart_by_its_target() -> None:
    """The same text means the same place, and two places are two texts."""
    sinks: list[Sink] = [Delta(), Delta(path="a"), Postgres(table="a.b"), Postgres(table="a.b", connection="C")]
    targets = {parts(replace(output(), sink=sink))["outputs"]["sums"]["target"] for sink in sinks}
    assert len(targets) == len(sinks)


def test_a_pipeline_stays_by_position_or_by_columns() -> None:
    """From places to columns it needs another pipeline too."""
    placed, named = receive_parts(pipeline(record_id=())), receive_parts(pipeline())

    assert [(c.part, c.need) for c in changes("receive", placed, named)] == [("record_id", Need.NAME)]


def test_a_failed_step_names_what_is_done_and_left() -> None:
    todo = [Step("incarnation", "…", ("shop/sums",)), run_step("shop"), Step("backfill", "onlyonce backfill shop", ())]
    error = stopped_at(Plan("shop", [], todo, [], []), 1, Retryable("it is away", data="nothing was read", hint="wait"))

    assert isinstance(error, Retryable)
    assert (error.what, error.data, error.hint) == (
        "it is away",
        "done: a new incarnation of shop/sums. This step, onlyonce run shop: nothing was read. Left: onlyonce run shop; "
        "onlyonce backfill shop",
        "wait. `onlyonce plan shop --yes` then does only the steps that are left",
    )
    assert stopped_at(Plan("shop", [], todo, [], []), 0, Retryable("it is away")).data.startswith(
        "done: no step. Left: "
    )
