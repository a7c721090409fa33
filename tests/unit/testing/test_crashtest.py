"""The crash test's decisions: which kills, in which chains, and what is said of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Delta, Files, FileSink, Growing, Output, Pipeline, Postgres, PubSub
from onlyonce.cli import app
from onlyonce.core.errors import Refused
from onlyonce.core.triggers import AfterRecords, AfterTime
from onlyonce.core.windows import Fixed
from onlyonce.settings import ROOT
from onlyonce.testing import crash_results, crashtest
from onlyonce.testing.crash_results import Asked, Chain, Difference, Played, Queue, Strike, report

PASSES = ["start", "receive", "unit", "unit", "end", "receive", "unit", "end", "start", "write", "start", "write"]
LOST = Difference("totals", 3, 0)
MORE = Difference("totals", 0, 2)

passed = st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), min_size=1)


def pipeline(**given: object) -> Pipeline:
    """A pipeline with an output of each sink."""
    outputs = (
        Output(name="each", transform="m:f", sink=Delta(path="/somebody/s/table")),
        Output(name="totals", transform="m:f", sink=Postgres(table="a.totals", connection="THEIRS")),
    )
    options: dict[str, object] = {
        "name": "mine", "source": Files(inbox="/somebody/s/inbox"), "schema": "id string, at timestamp",
        "record_id": ("id",), "event_time": "at", "outputs": outputs,
    }  # fmt: skip
    return Pipeline(**(options | given))  # type: ignore[arg-type]


@given(passed, st.integers())
def test_every_point_that_is_passed_is_struck_once_where_it_is_passed(passes: list[str], seed: int) -> None:
    """No point is left out, none is named that the run does not pass, and each kill is at a pass of its point."""
    strikes = crash_results.every_point(passes, seed)

    assert Counter(s.point for s in strikes) == Counter(set(passes))
    assert all(passes[s.at] == s.point and passes[: s.at + 1].count(s.point) == s.nth for s in strikes)
    assert strikes == crash_results.every_point(passes, seed)


def test_the_seed_draws_the_pass() -> None:
    """Over some seeds each pass of a point is drawn: later batches and other outputs are killed too."""
    drawn = {s.nth for seed in range(50) for s in crash_results.every_point(PASSES, seed) if s.point == "unit"}

    assert drawn == {1, 2, 3}


def test_named_points_are_taken_and_a_wrong_one_is_refused_with_the_nearest() -> None:
    """`point` is its first pass, `point:nth` another; what is not passed is refused."""
    assert crash_results.named_points(PASSES, ["write:2", "unit"]) == [Strike("unit", 1, 2), Strike("write", 2, 11)]
    for wrong, words in (("recieve", "receive"), ("unit:4", "3 times"), ("unit:0", "3 times")):
        with pytest.raises(Refused) as refused:
            crash_results.named_points(PASSES, [wrong])
        assert words in str(refused.value)


@given(passed, st.integers(1, 7), st.integers(1, 9))
def test_a_sample_is_some_of_the_kills_and_the_same_for_a_seed(passes: list[str], count: int, seed: int) -> None:
    """As many as asked for, in the order of the run, each once."""
    strikes = crash_results.every_point(passes, seed)
    sample = crash_results.sampled_points(strikes, count, seed)

    assert len(sample) == min(count, len(strikes))
    assert sample == [s for s in strikes if s in sample]
    assert sample == crash_results.sampled_points(strikes, count, seed)


@given(passed, st.integers(1, 7))
def test_chains_hold_each_kill_once_in_order_and_none_is_too_long(passes: list[str], length: int) -> None:
    """Dealt out: no kill is lost or doubled, and within a chain a later kill lies later in the run."""
    strikes = crash_results.every_point(passes, 1)
    chains = crash_results.dealt_points(strikes, length)

    assert sorted(chain.from_iterable(chains), key=lambda s: s.at) == strikes
    assert all(0 < len(c) <= length and c == sorted(c, key=lambda s: s.at) for c in chains)


def test_a_kill_after_another_counts_the_passes_from_there() -> None:
    """The run that goes on passes only what is left; the first pass at least is asked for."""
    before, strike = Strike("unit", 2, 3), Strike("unit", 3, 6)

    assert crash_results.nth_from(PASSES, None, strike) == 3
    assert crash_results.nth_from(PASSES, before, strike) == 1
    assert crash_results.nth_from(PASSES, strike, before) == 1


def said(queue: Queue) -> dict[str, str]:
    """The verdicts by kill."""
    return {str(v.strike): v.said for v in queue.verdicts}


STRIKES = crash_results.named_points(PASSES, ["start:2", "receive", "unit:2", "end"])
RECEIVE, UNIT, END, START = STRIKES


def test_a_chain_that_agrees_has_held_and_one_that_does_not_differs_in_all_its_kills() -> None:
    """One comparison judges the whole chain."""
    queue = Queue([])
    queue.judge(1, Chain((RECEIVE, UNIT)), PASSES, go_on=False)
    queue.judge(2, Chain((END, START), differences=(LOST, MORE)), PASSES, go_on=False)

    assert said(queue) == {"receive:1": "held", "unit:2": "held", "end:1": "differs", "start:2": "differs"}
    assert {(v.lost, v.doubled) for v in queue.verdicts if v.said == "differs"} == {(3, 2)}


def test_kills_that_were_not_reached_go_to_the_head_of_a_new_chain() -> None:
    """A chain that came to its end too early has judged what struck, and the rest is tried from the start."""
    queue = Queue([])
    queue.judge(1, Chain((RECEIVE,), unreached=(UNIT, START)), PASSES, go_on=False)

    assert said(queue) == {"receive:1": "held"}
    assert queue.chains == [[UNIT, START]]


def test_a_kill_at_the_head_that_is_not_reached_is_tried_at_its_first_pass_and_then_said_so() -> None:
    """It is never called held, and it is not tried without end."""
    queue = Queue([])
    queue.judge(1, Chain((), unreached=(UNIT, START)), PASSES, go_on=False)
    assert queue.chains == [[Strike("unit", 1, 2), START]]

    queue.judge(2, Chain((), unreached=(Strike("unit", 1, 2), START)), PASSES, go_on=False)
    assert said(queue) == {"unit:1": "not reached"}
    assert queue.chains[-1] == [START]


def test_a_run_that_stops_tells_which_kill_was_before_it() -> None:
    """The others of its chain are not judged; asked to go on, they are played again without it."""
    stopped = Chain((RECEIVE, UNIT), unreached=(END,), stopped="a unit has other rows")
    queue, going_on = Queue([]), Queue([])
    queue.judge(1, stopped, PASSES, go_on=False)
    going_on.judge(1, stopped, PASSES, go_on=True)

    assert said(queue) == {"unit:2": "stopped", "receive:1": "not judged", "end:1": "not judged"}
    assert queue.chains == []
    assert said(going_on) == {"unit:2": "stopped"}
    assert going_on.chains == [[RECEIVE, END]]


def test_a_run_that_stops_before_any_kill_is_no_chain_without_end() -> None:
    """The kill that it was armed for is called stopped, and goes into no other chain."""
    queue = Queue([])
    queue.judge(1, Chain((), unreached=(UNIT, END), stopped="it said nothing"), PASSES, go_on=True)

    assert said(queue) == {"unit:2": "stopped"}
    assert [v.killed for v in queue.verdicts] == [False]
    assert queue.chains == [[END]]


def test_only_at_least_once_an_append_may_have_rows_twice() -> None:
    """Everything else that differs is broken: a row lost, a row twice in another sink, in `events` or by the log."""
    loose = pipeline(mode="at_least_once")
    other = Difference("events", 0, 1)

    assert crash_results.broken_results(pipeline(), [LOST, MORE, other]) == (LOST, MORE, other)
    assert crash_results.broken_results(loose, [MORE, other]) == (other,)
    assert crash_results.broken_results(loose, [LOST, replace(MORE, lost=1)]) == (LOST, replace(MORE, lost=1))


@pytest.mark.parametrize(
    ("chain_", "control", "words"),
    [
        (Chain((UNIT,), differences=(LOST,)), (LOST,), "two runs without any kill differ too (totals)"),
        (Chain((UNIT,), differences=(LOST,)), (), "it was a kill that shows"),
        (Chain((UNIT,), stopped="other rows"), None, "stable_input=True"),
        (Chain((), unreached=(RECEIVE,)), None, "nothing is known"),
    ],
)
def test_whatever_has_not_held_has_words_for_what_to_do(
    chain_: Chain, control: tuple[Difference, ...] | None, words: str
) -> None:
    """And a test in which all held has none."""
    queue = Queue([])
    queue.judge(1, chain_, PASSES, go_on=False)
    stopped = [chain_.stopped] if chain_.stopped else []

    assert words in " ".join(crash_results.advice(queue.verdicts, control, stopped, "again"))
    held = crash_results.judged(1, Chain((UNIT,)))
    assert crash_results.advice(held, None, [], "again") == []


def test_a_moved_pipeline_names_no_place_of_the_user(tmp_path: Path) -> None:
    """The inbox is the copy, tables have their default places; the database of a sink is changed by its variable."""
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from onlyonce.api.pipeline import *\nPIPELINES = [Pipeline(name='mine', "
        "source=Files(inbox='/somebody/s/inbox', "
        "max_files_a_batch=3), schema='id string, at timestamp', record_id=('id',), event_time='at', outputs=("
        "Output(name='each', transform='m:f', sink=Delta(path='/somebody/s/table')), "
        "Output(name='files', transform='m:f', sink=FileSink(path='s3://somebody/s', shards=2)), "
        "Output(name='totals', transform='m:f', sink=Postgres(table='a.totals', connection='THEIRS'))))]\n"
    )
    file = crashtest.file_for_target("mine", [mine], tmp_path / "copy", tmp_path / "declared")

    moved = declarations.one("mine", [file])

    assert moved.source == Files(inbox=str(tmp_path / "copy"), max_files_a_batch=3)
    assert [output.sink for output in moved.outputs[:2]] == [Delta(), FileSink(shards=2)]
    assert crashtest.connections(moved) == ["THEIRS"]
    assert moved.columns() == pipeline().columns()


@pytest.mark.parametrize("stays", [{"sink": FileSink()}, {"sink": Delta(), "pane_column": "pane"}])
def test_panes_that_stay_do_not_come_by_the_clock(stays: dict[str, Any]) -> None:
    """Two runs would write other panes. An upsert replaces them, so it keeps its trigger."""
    by_time = AfterTime(timedelta(minutes=5))
    plain: dict[str, Any] = {"name": "early", "transform": "m:f", "window": Fixed(timedelta(hours=1)), "panes": by_time}

    assert crashtest._redirected(Output(**plain | stays)).panes == AfterRecords(1)
    assert crashtest._redirected(Output(**plain, sink=Delta(write="upsert", keys="window_start"))).panes == by_time


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (
            {"source": PubSub(subscription="projects/p/subscriptions/s", record_id_attribute="id")},
            "PubSub",
        ),
        ({"source": Growing()}, "Growing"),
    ],
)
def test_what_cannot_be_moved_is_refused(wrong: dict[str, object], kind: str) -> None:
    """A source of a kind that is not known never runs in a crash test: it would reach the user's own."""
    with pytest.raises(Refused) as refused:
        crashtest.check_redirected(pipeline(**wrong))

    assert kind in refused.value.what
    assert "nothing was read or written" in refused.value.data


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope", "--input", "{full}"], "choose one of: each, outside, shaky"),
        (["each", "--input", "{empty}"], "there are no files in"),
        (["each", "--input", "{full}", "--master", "spark://there:7077"], "this machine only"),
        (["each", "--input", "{full}", "--leave-out", "writen.cents"], "did you mean 'written'?"),
        (["each", "--input", "{full}", "--leave-out", "written"], "names no column"),
    ],
)
def test_what_cannot_be_tested_is_refused_before_anything_starts(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the words of what to ask instead, and without a server."""
    for name in ("full", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "a.jsonl").write_text("{}\n")
    (tmp_path / "empty" / ".hidden").write_text("{}\n")
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(ROOT / "tests/support/tiny.py"))
    monkeypatch.setattr("onlyonce.local.postgres.start", lambda: pytest.fail("a server was started"))

    result = CliRunner().invoke(
        app, ["crashtest", *[part.format(full=tmp_path / "full", empty=tmp_path / "empty") for part in arguments]]
    )

    assert result.exit_code == Refused.exit_code, result.output
    assert words in result.stderr


def test_the_report_says_whether_all_held_and_how_to_play_a_chain_alone() -> None:
    """A kill that was not judged is not held; the command names the kills of the chain that differs, and nothing
    else."""
    asked = Asked("mine", Path("in put"), files=[Path("/mine.py")], max_files=2)
    queue = Queue([])
    queue.judge(1, Chain((RECEIVE,)), PASSES, go_on=False)
    queue.judge(2, Chain((UNIT, START), differences=(LOST,)), PASSES, go_on=False)

    held = report(asked, Played(1, 20.0, 100, queue.verdicts[:1]))
    found = report(asked, Played(3, 20.0, 100, queue.verdicts, [(2, LOST)], [], ()))
    unplayed = report(asked, Played(2, 20.0, 100, queue.verdicts[:1]))

    assert held.facts["all held"] is True
    assert held.warnings == []
    assert (found.facts["all held"], unplayed.facts["all held"]) == (False, False)
    assert (
        "onlyonce crashtest mine --input 'in put' --pipelines /mine.py --max-files 2 --chain 1 --all --points "
        "unit:2,start:2" in found.warnings[0]
    )
    assert found.tables["differences"][0]["lost"] == 3
