"""The conformance suite's cases about what rows hold and what a target is; and the list of all cases."""

from __future__ import annotations

from collections.abc import Callable

from onlyonce.testing.suite import cases
from onlyonce.testing.suite.cases import Row, UnderTest, expect, make_rows
from onlyonce.testing.suite.processes import Processes

ODD = [
    "",
    " ",
    "null",
    "NULL",
    r"\N",
    r"\.",
    "\\",
    r"C:\new\table",
    '"',
    '""',
    "'",
    "it's",
    "''; DROP TABLE units; --",
    "a,b;c\td",
    "one\ntwo",
    "\r\n",
    "🛒 çé 漢字 \u202e",
    '{"a": 1}',
    "$1 %s :x %(n)s",
    "-- x",
    "../../etc/passwd",
    "/dev/null",
    "{window_start}",
    "a\u2028b\x1fc\x7f",
    "`x`",
    "<b>&amp;</b>",
    "=1+1",
    "\ufeffbom",
    "x" * 20_000,
]
ODD_NAMES = ['we"ird; DROP TABLE "units', "it's", "ключ 🛒", "a b\tc", "../up", "{shard}", "%s", "text`"]


def an_empty_partition_is_a_unit_too(sink: UnderTest, processes: Processes) -> None:
    """All rows are of one key, so of one partition; and a batch has none at all."""
    one = [row | {"key": "same"} for row in make_rows(0)]
    for batch, rows in enumerate((one, [], make_rows(2))):
        sink.write(batch, rows)
        sink.restart()
        sink.write(batch, rows)
    expect(sink, one, make_rows(2))


def a_huge_row_arrives_whole(sink: UnderTest, processes: Processes) -> None:
    """One among small ones."""
    rows: list[Row] = [*make_rows(0), {"id": "huge", "key": "key 0", "n": 7, "text": "é🛒x\n" * (sink.huge // 5)}]
    sink.write(0, rows)
    expect(sink, rows, again=False)


def null_keys_are_a_key_like_any_other(sink: UnderTest, processes: Processes) -> None:
    """And null stays null: it is not '' and not 'null'."""
    rows: list[Row] = [
        {"id": f"{n}", "key": key, "n": n, "text": text}
        for n, (key, text) in enumerate([(None, None), (None, ""), ("", None), ("null", "null"), (None, "null")])
    ]
    sink.write(0, rows)
    sink.restart()
    sink.write(0, rows)
    expect(sink, rows)


def odd_signs_mean_only_themselves(sink: UnderTest, processes: Processes) -> None:
    """In values, in keys and in ids."""
    rows: list[Row] = [{"id": f"{n} {odd}", "key": odd, "n": n, "text": odd} for n, odd in enumerate(ODD)]
    sink.write(0, rows)
    sink.restart()
    sink.write(0, rows, cut=5)
    expect(sink, rows)


def odd_names_mean_only_themselves(sink: UnderTest, processes: Processes) -> None:
    """A column's name is a name, whatever it looks like."""
    rows = make_rows(0)
    sink.write(0, rows)
    expect(sink, rows, again=False)


def a_broken_target_is_loud_and_loses_nothing(sink: UnderTest, processes: Processes) -> None:
    """Missing, read-only or full: an error, no half of a batch; when it is mended the same batch is written."""
    ways = sink.broken()
    assert ways
    batches = []
    for batch, (way, entered) in enumerate(ways.items()):
        rows = make_rows(batch)
        with entered():
            try:
                sink.write(batch, rows)
            except Exception:
                silent = False
            else:
                silent = True
        assert not silent, f"the target was {way}, and nobody was told"
        sink.restart()
        sink.write(batch, rows)
        batches.append(rows)
    expect(sink, *batches)


Case = Callable[[UnderTest, Processes], None]
CASES: tuple[Case, ...] = (
    cases.each_row_is_there_once,
    cases.a_unit_written_twice_is_there_once,
    cases.of_twins_one_writes,
    cases.a_zombie_changes_nothing,
    cases.a_kill_at_any_point_does_not_show,
    cases.a_lost_answer_does_not_show,
    cases.another_cut_of_the_rows_is_the_same_unit,
    cases.a_late_record_makes_no_second_version,
    cases.a_replay_of_other_rows_is_stopped,
    cases.a_fenced_driver_writes_nothing,
    an_empty_partition_is_a_unit_too,
    a_huge_row_arrives_whole,
    null_keys_are_a_key_like_any_other,
    odd_signs_mean_only_themselves,
    odd_names_mean_only_themselves,
    a_broken_target_is_loud_and_loses_nothing,
)
