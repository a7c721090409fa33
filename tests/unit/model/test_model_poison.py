"""When a record at which receive fails is looked for, and what is said of it."""

from __future__ import annotations

from onlyonce.core.bisect import cause_of, is_search_due, told_of_record


def test_one_cause_is_the_same_whatever_numbers_its_attempts_have() -> None:
    """Tasks, stages and addresses differ from attempt to attempt."""
    errors = [ValueError(f"Task {n} in stage {n}.0 failed 4 times at 0x7f{n}a") for n in range(3)]

    assert len({cause_of(error) for error in errors}) == 1
    assert cause_of(ValueError("another")) != cause_of(TypeError("another"))


def test_a_search_is_due_at_each_third_failure() -> None:
    """And not at the others: it reads the batch many times."""
    assert [times for times in range(10) if is_search_due(times)] == [3, 6, 9]


def test_of_a_workers_error_the_line_is_told_with_which_its_traceback_ends() -> None:
    """Spark puts its own words before it."""
    text = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File 'x', line "
        "1\nArithmeticError: no\n"
    )

    assert told_of_record(RuntimeError(text)) == "ArithmeticError: no"
    assert told_of_record(RuntimeError("the disk\nis gone")) == "the disk"
    assert told_of_record(RuntimeError()) == "RuntimeError"
