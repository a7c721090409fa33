"""Errors: the class tells who acts, it survives the way from a worker, and its code is its own."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from onlyonce.core import errors
from onlyonce.core.errors import EXIT_CODES, OnlyonceError, Refused
from onlyonce.core.runs import Report

KINDS = sorted(OnlyonceError.__subclasses__(), key=lambda kind: kind.__name__)


def test_each_class_is_in_the_table_of_the_module() -> None:
    """With the exit code that it has: the table is what a reader goes by."""
    table = errors.__doc__ or ""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "| " in line]

    assert Counter((k.__name__, str(k.exit_code)) for k in KINDS) == Counter((row[0], row[2]) for row in rows[1:])


def test_exit_codes_that_mean_other_actions_differ() -> None:
    """Only the two that the same command heals share a code; none is one of a crash or a signal."""
    codes = Counter(kind.exit_code for kind in KINDS)

    assert {code: n for code, n in codes.items() if n > 1} == {75: 2}
    assert {k.__name__ for k in KINDS if k.exit_code == 75} == {"CommitStateUnknown", "Retryable"}
    assert all(2 < code < 126 for code in codes)


def test_each_exit_code_has_its_class_and_75_reads_as_retryable() -> None:
    """What Airflow does with a driver's code is decided by this map."""
    assert set(EXIT_CODES) == {kind.exit_code for kind in KINDS}
    assert all(kind.exit_code == code for code, kind in EXIT_CODES.items())
    assert EXIT_CODES[75] is errors.Retryable


@pytest.mark.parametrize("kind", [OnlyonceError, *KINDS])
def test_an_error_comes_back_from_a_worker_as_it_was(kind: type[OnlyonceError]) -> None:
    """Class, text, data and hint survive pickle; it is still an error that can be raised."""
    error = kind("what happened", data="the data", hint="the hint")

    back = pickle.loads(pickle.dumps(error))

    assert type(back) is kind
    assert (back.what, back.data, back.hint) == ("what happened", "the data", "the hint")
    assert str(back) == str(error)
    assert back.args == error.args


@pytest.mark.parametrize("kind", [OnlyonceError, *KINDS])
def test_each_class_says_what_it_means(kind: type[OnlyonceError]) -> None:
    """In a docstring of its own, not an inherited one."""
    assert kind.__doc__
    assert kind.__doc__ not in [base.__doc__ for base in kind.__mro__[1:]]


def test_an_error_reads_as_three_lines_and_leaves_out_what_it_has_not() -> None:
    """What, data, next."""
    assert str(Refused("a", data="b", hint="c")).splitlines() == ["a", "  data: b", "  next: c"]
    assert str(Refused("a", hint="c")).splitlines() == ["a", "  next: c"]
    assert str(Refused("a")) == "a"


def test_a_report_is_plain_values_all_through() -> None:
    """Nested tables too, so that it can be written as JSON."""
    report = Report("t", "r", {"a": 1}, {"x": [{"b": 2}]}, ["w"])

    assert report.as_dict() == {
        "title": "t",
        "run_id": "r",
        "facts": {"a": 1},
        "tables": {"x": [{"b": 2}]},
        "warnings": ["w"],
    }


RESULTS = {
    "one line": ("def f(rows):\n    return rows.select('a')\n", 2),
    "its last call": ("def f(rows):\n    return (\n        rows.select('a')\n        .agg('b')\n    )\n", 4),
    "a name": ("def f(rows):\n    made = rows.agg('b')\n    return made\n", 3),
    "a decorated function": ("@plain\ndef f(rows):\n    return rows.agg('b')\n", 3),
    "a function inside": ("def f(rows):\n    def g():\n        return 1\n    return rows.agg('b')\n", 4),
    "several": ("def f(rows):\n    if rows:\n        return 1\n    return 2\n", 1),
    "none": ("def f(rows):\n    rows.agg('b')\n", 1),
}


@pytest.mark.parametrize("text, line", RESULTS.values(), ids=RESULTS)
def test_line_of_a_result_is_that_of_the_last_call_of_the_return(tmp_path: Path, text: str, line: int) -> None:
    file = tmp_path / "functions.py"
    file.write_text(text)
    names: dict[str, Any] = {"plain": lambda function: function}
    exec(compile(text, str(file), "exec"), names)

    assert errors.origin_of_result(names["f"]) == f"{file}:{line}"
    assert errors.origin_of_result(len) is None
