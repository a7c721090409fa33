"""The table of places of a value is complete: each is planted by a test, and each source, sink, log and sentence of a
receipt is a place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import get_args

import pytest

from onlyonce import settings
from onlyonce.api.joins_and_state import Stateful
from onlyonce.api.outputs import Output
from onlyonce.api.pipeline import Pipeline, Sink
from onlyonce.api.sinks import Delta, Webhook
from onlyonce.api.sources import Files, Source
from onlyonce.operate import erase_search, forget
from onlyonce.settings import ROOT
from tests.support.erasure_places import PLACES, by_path


def planted() -> Iterator[str]:
    """Yield each place that a test is marked with.

    The modules are read and not imported, since many of them import Spark.
    """
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        if re.search("^@plants", source := file.read_text(), re.MULTILINE):
            marks = [
                mark
                for test in ast.parse(source).body
                if isinstance(test, ast.FunctionDef)
                for mark in test.decorator_list
            ]
            for mark in marks:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "plants":
                    yield from by_path() if ast.unparse(mark.args[0]) == "*PLACES" else map(ast.literal_eval, mark.args)


def test_each_place_is_planted_by_a_test() -> None:
    """And no test plants in a place that the table does not have."""
    assert {*planted()} == PLACES.keys()


def test_each_source_sink_and_log_is_a_place() -> None:
    """A new kind of source or sink has no place in the table until a test plants a value there."""
    assert {kind for place in PLACES.values() for kind in place.of} == {*get_args(Source), *get_args(Sink)}
    assert {"logs", "airflow"} == {*erase_search.LOGS}
    assert {"run log", "log of Airflow"} <= PLACES.keys()


def test_a_receipt_says_why_a_place_can_not_be_searched() -> None:
    """One line for each place that any installation may have."""
    lines = [one.line() for one in forget.UNKNOWN]
    assert all(re.fullmatch(r"[^\n]+: not searched: onlyonce [^;\n]+; [^\n]+", line) for line in lines)
    assert all(
        any(what in line for line in lines)
        for what in ("backups", "PostgreSQL", "xcom", "rendered_task_instance_fields", "copies")
    )


def test_state_that_no_new_incarnation_replaces_has_its_own_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key of a `Stateful` output to a target whose rows can't be withdrawn stays for as long as its processor keeps
    it."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    state = Stateful(processor="m:P", keys="id", schema="id string", timers_within=timedelta(minutes=1))
    outputs = tuple(
        Output(name=name, stateful=state, sink=sink)
        for name, sink in (("table", Delta()), ("calls", Webhook(connection="TEST_URL")))
    )
    pipeline = Pipeline(
        name="shop", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at", outputs=outputs
    )
    files = [settings.data_location("shop") / "checkpoints" / output.name / "0" / "state" / "1" for output in outputs]
    for file in files:
        at = Path(str(file))
        at.parent.mkdir(parents=True)
        at.write_text("")

    ends = {file.at: file.goes for file in erase_search._files(pipeline)}

    assert [ends[str(file)] for file in files] == [erase_search.OURS["checkpoints"], erase_search.STATE_STAYS]


@pytest.mark.parametrize(
    "sentence",
    ["{} dead row versions cannot be removed yet.", "{} tote Zeilenversionen können noch nicht entfernt werden.",
     "В данный момент нельзя удалить \"мёртвых\" строк {}.", "{} 個の無効な行が今はまだ削除できません。"],
)  # fmt: skip
def test_an_older_transaction_is_noticed_in_each_language(sentence: str) -> None:
    """PostgreSQL translates its notices by the server's lc_messages."""

    def notice(dead: int) -> str:
        return f'INFO:  "a.b1": 7, 10\nDETAIL:  {sentence.format(dead)}\nCPU: 0,10 s.\n'

    assert erase_search.STILL_SEEN.match(notice(3))
    assert not erase_search.STILL_SEEN.match(notice(0))
    assert not erase_search.STILL_SEEN.match('INFO:  vacuuming "a.b1"\n')
