"""How an output declares which records it rejects, what is refused, and what a change means."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from onlyonce import check
from onlyonce.api import functions, load
from onlyonce.api.pipeline import Delta, Files, Output, Pipeline
from onlyonce.core.changes import Need, changes
from onlyonce.core.errors import Refused
from onlyonce.core.windows import Fixed

MINUTE = timedelta(minutes=1)


def rows(sales: Any) -> Any:
    """What an output makes."""


def unsound(sales: Any) -> Any:
    """Why a record is rejected."""


def unwanted(sales: Any) -> Any:
    """The same for another reason."""
    return sales


def by_price(sales: Any, prices: Any) -> Any:
    """Asks for more than the rows."""


def output(name: str = "sums", **more: Any) -> Output:
    """An output of this module's function."""
    plain: dict[str, Any] = {"transform": f"{__name__}:rows", "sink": Delta()}
    return Output(name=name, **plain | more)


def pipeline(*outputs: Output) -> Pipeline:
    """A pipeline of them."""
    return Pipeline(
        name="shop", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at", outputs=outputs
    )


UNSOUND = f"{__name__}:unsound"
WRONG: dict[str, tuple[Callable[[], object], str, str]] = {
    "no function's name": (lambda: output(reject="cents < 0"), "reject 'cents < 0' is not of the form 'module:function'", ""),
    "rows of windows": (lambda: output("made", from_output="sums", reject=UNSOUND), "only records can be rejected", "declare reject at sums"),
    "not there": (lambda: load.reject(output(reject=f"{__name__}:unsoun")), "the function that rejects, .*unsoun' does not exist", "did you mean '.*:unsound'"),
    "more than the rows": (
        lambda: functions.check_reject(output(reject=f"{__name__}:by_price"), by_price), "takes 'prices', which nothing is given to", "a dict of DataFrames"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_can_not_reject_is_refused_with_the_way_out(case: str) -> None:
    """The message names the cause, the hint what to write instead."""
    make, what, hint = WRONG[case]
    with pytest.raises(Refused, match=what) as refused:
        make()
    assert re.search(hint, refused.value.hint), refused.value.hint


def test_a_pipeline_that_rejects_nothing_is_as_it_was_and_one_that_does_is_another() -> None:
    """The function and its text make another. So does what a check keeps."""
    assert "reject" not in load.parts(pipeline(output()), "sums")["outputs"]["sums"]
    declared = [pipeline(output(reject=given)) for given in ("", UNSOUND, f"{__name__}:unwanted")]
    assert len({load.fingerprint(one, "sums") for one in declared}) == len(declared)
    assert len({check.key_of_check(one) for one in declared}) == len(declared)


@pytest.mark.parametrize(
    ("window", "stateless", "need"),
    [
        (Fixed(MINUTE), False, Need.BOTH),
        (Fixed(MINUTE), True, Need.BACKFILL),
        (None, True, Need.NOTHING),
        (None, False, Need.INCARNATION),
    ],
)
def test_a_plan_tells_of_another_function_as_of_a_changed_transform(
    window: Fixed | None, stateless: bool, need: Need
) -> None:
    """What is written, and the sums of open windows, have rejected by the old one."""
    before, after = (load.parts(pipeline(output(window=window, reject=given)), "sums") for given in ("", UNSOUND))
    for one, other in ((before, after), (after, before)):
        found = changes("sums", one, other, stateless=stateless)
        assert [(change.part, change.need) for change in found] == [("reject of output sums", need)]
