"""Ctrl-C: acknowledged at once, ends between two batches, a second one at once; also after Spark took the signal."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from types import FrameType

import pytest
from structlog.testing import capture_logs

from onlyonce.core.runs import Stopped
from onlyonce.run.interrupts import STOPPING, Interrupts


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Python's own handler of SIGINT, which a process in the background lacks."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def spark_starts() -> None:
    """As Spark's context does at the end of its start."""

    def cancel(_: int, __: FrameType | None) -> None:
        raise AssertionError("the jobs of the batch at work are cancelled")

    signal.signal(signal.SIGINT, cancel)


def test_the_first_press_asks_and_the_second_ends_at_once() -> None:
    asked: list[bool] = []

    def run() -> None:
        with Interrupts(lambda: asked.append(True), signal.SIGINT) as signals:
            spark_starts()
            signals.started()
            press()
            assert asked == [True]
            press()

    with capture_logs() as said, pytest.raises(KeyboardInterrupt):
        run()

    assert [(line["event"], line["after"]) for line in said] == [(STOPPING, "the current batches")]


def test_a_press_while_spark_starts_ends_the_start() -> None:
    def run() -> None:
        with Interrupts(lambda: None, signal.SIGINT):
            press()
            raise AssertionError("Spark's start goes on")

    with capture_logs() as said, pytest.raises(Stopped):
        run()

    assert [(line["event"], line["after"]) for line in said] == [(STOPPING, "Spark's start")]


def test_the_signals_are_given_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts(lambda: None, signal.SIGINT) as signals:
        spark_starts()
        signals.started()

    assert signal.getsignal(signal.SIGINT) is before
