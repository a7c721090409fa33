"""Reads a transcript: a YAML file that tells what comes in, and what each output then writes and calls late.

The words are explained in tests/transcripts/README.md. Whatever is no word of a transcript is an error that names
the file: a misspelt expectation would otherwise expect nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import yaml

from onlyonce.core.batch import to_micros
from onlyonce.core.triggers import AfterRecords, AfterTime, Trigger
from onlyonce.core.windows import Chained, Fixed, Joined, Micros, Session, Sliding, Timed, Window

FOLDER = Path(__file__).parent
Bounds = tuple[Micros, Micros] | None
Written = Counter[tuple[str, Bounds, int]]  # (key, window, records): how often
Late = Counter[tuple[str, Micros, Bounds]]  # (key, time, window): how often

SINKS = ("delta", "postgres", "mysql", "iceberg", "bigquery stream")
COMPRESSED = ("gz", "bz2", "zst")
_UNITS = {"millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": 86_400_000_000}
_WINDOW = re.compile(
    r"fixed (?P<size>\d+ \w+)(?: in (?P<zone>\S+))?(?: from (?P<offset>\d+ \w+))?"
    r"|sliding (?P<wide>\d+ \w+) every (?P<slide>\d+ \w+)(?: from (?P<shift>\d+ \w+))?"
    r"|session gap (?P<gap>\d+ \w+)"
)


@dataclass(frozen=True)
class Record:
    """One line of input."""

    key: str
    time: Micros


@dataclass(frozen=True)
class Declared:
    """An output under test: how it is declared.

    A result of another one's function has the records of its keys, which that one has not.
    """

    name: str
    window: Window | None
    watermark_delay: timedelta
    panes: Literal["on_time", "early"] | Trigger
    looks_up: bool = False
    result_of: str | None = None
    join: Literal["inner", "left", "right", "full"] | None = None
    keys: frozenset[str] = frozenset()
    rejects: frozenset[str] = frozenset()
    made_from: str | None = None
    silence: timedelta | None = None
    sink: str = "delta"


@dataclass(frozen=True)
class Outcome:
    """What one output has to show for one step. `closed` is None where a transcript does not say."""

    writes: Written
    late: Late
    closed: Micros | None = None
    rejected: Late = field(default_factory=Counter)


@dataclass(frozen=True)
class Step:
    """Something happens, and each output answers.

    Its clock is what the receiving machine's clock shows; `table` is what outputs look up from here on, None where it
    stays. `compressed` is how its file is compressed; one that is cut short is no record at all, and one that is invalid."""

    kind: Literal["batch", "ended", "silent"]
    records: tuple[Record, ...]
    clock: Micros
    invalid: Counter[tuple[str, Micros]]
    expected: dict[str, Outcome]
    table: dict[str, str] | None = None
    source: str | None = None
    compressed: str = ""
    cut_short: bool = False


@dataclass(frozen=True)
class Story:
    """One transcript."""

    name: str
    title: str
    outputs: tuple[Declared, ...]
    steps: tuple[Step, ...]
    idle_after: timedelta | None
    max_ahead: timedelta
    bounded: bool
    each_step_runs: bool
    must_say: str | None
    sources: tuple[str, ...] = ()
    source_idle: timedelta | None = None


def all_in(folder: Path) -> list[Story]:
    """The transcripts of a folder, by name."""
    return [read(path) for path in sorted(folder.glob("*.yaml"))]


def read(path: Path) -> Story:
    """One transcript. Raises ValueError with the file's name for what it can't read."""
    # All as text: to YAML, 10:00 is the number 600.
    told = yaml.load(path.read_text(), Loader=yaml.BaseLoader)
    try:
        return _story(path.stem, told)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path.name}: {error}") from error


def _story(name: str, told: dict[str, Any]) -> Story:
    _only(
        told,
        "title",
        "day",
        "outputs",
        "steps",
        "idle after",
        "max ahead",
        "run",
        "must say",
        "sources",
        "a source is idle after",
    )
    outputs: tuple[Declared, ...] = ()
    for key, value in told["outputs"].items():
        outputs += (_declared(key, value, {one.name: one for one in outputs}),)
    reader = _Times(told.get("day", "2026-01-01"))
    steps: list[Step] = []
    clock = 0
    for number, step in enumerate(told["steps"], 1):
        try:
            steps.append(_step(step, reader, clock, [o.name for o in outputs]))
        except ValueError as error:
            raise ValueError(f"step {number}: {error}") from error
        clock = steps[-1].clock
    idle = told.get("idle after")
    run = told.get("run", "together")
    _one_of(run, "together", "each step", "bounded")
    return Story(
        name, told["title"], outputs, tuple(steps), None if idle is None else span(idle), span(told.get("max ahead", "1 day")),
        run == "bounded", run == "each step", told.get("must say"),
        tuple(_parts(told.get("sources", "nothing"))), span(told["a source is idle after"]) if "sources" in told else None,
    )  # fmt: skip


def _declared(name: str, told: dict[str, str], before: dict[str, Declared]) -> Declared:
    _only(
        told,
        "window",
        "watermark_delay",
        "panes",
        "looks up",
        "result of",
        "keys",
        "join",
        "rejects",
        "from",
        "silence",
        "sink",
    )
    if "result of" in told:
        return Declared(
            name, None, span("0 seconds"), "on_time", result_of=told["result of"], keys=frozenset(_parts(told["keys"]))
        )
    if "join" in told:
        return _joined(name, told)
    if "from" in told:
        return _chained(name, told, before[told["from"]])
    if "silence" in told:
        return _silent(name, told)
    return Declared(
        name,
        window(told["window"]),
        span(told.get("watermark_delay", "0 seconds")),
        _panes(told.get("panes", "on time")),
        "looks up" in told,
        rejects=frozenset(_parts(told.get("rejects", "nothing"))),
        sink=_sink(told.get("sink", "delta")),
    )


def _sink(told: str) -> str:
    _one_of(told, *SINKS)
    return told


def _joined(name: str, told: dict[str, str]) -> Declared:
    kind, _, within = told["join"].partition(" within ")
    _one_of(kind, "inner", "left", "right", "full")
    plain = window(told["window"])
    assert isinstance(plain, Fixed)
    late = span(told.get("watermark_delay", "0 seconds"))
    return Declared(name, Joined.of(plain, span(within)), late, "on_time", join=kind)  # type: ignore[arg-type]


def _chained(name: str, told: dict[str, str], before: Declared) -> Declared:
    plain = window(told["window"])
    assert isinstance(plain, Fixed)
    assert isinstance(before.window, Fixed | Sliding)
    found = Chained(plain.size, plain.offset, plain.timezone, before.window, before.watermark_delay)
    return Declared(name, found, span(told.get("watermark_delay", "0 seconds")), "on_time", made_from=before.name)


def _silent(name: str, told: dict[str, str]) -> Declared:
    plain, gap = window(told["window"]), span(told["silence"])
    assert isinstance(plain, Fixed)
    return Declared(name, Timed.of(plain, gap), span(told.get("watermark_delay", "0 seconds")), "on_time", silence=gap)


def _panes(told: str) -> Literal["on_time", "early"] | Trigger:
    """'on time', 'early', 'after 3 records', 'after 5 minutes', 'after 3 records or 5 minutes'."""
    if told.startswith("after "):
        first, _, second = told.removeprefix("after ").partition(" or ")
        number, _, unit = first.partition(" ")
        trigger = AfterRecords(int(number)) if unit == "records" else AfterTime(span(first))
        return trigger | AfterTime(span(second)) if second else trigger  # type: ignore[operator]
    _one_of(told, "on time", "early")
    return "early" if told == "early" else "on_time"


def window(told: str) -> Window | None:
    """'fixed 1 minute', 'fixed 1 day in Europe/Berlin from 6 hours', 'sliding 6 minutes every 2 minutes', 'none', …"""
    if told == "none":
        return None
    found = _WINDOW.fullmatch(told)
    if found is None:
        raise ValueError(
            f"window {told!r}: fixed SIZE [in ZONE] [from OFFSET], sliding SIZE every SLIDE, session gap GAP, none"
        )
    if found["gap"]:
        return Session(span(found["gap"]))
    if found["wide"]:
        return Sliding(span(found["wide"]), span(found["slide"]), span(found["shift"] or "0 seconds"))
    return Fixed(span(found["size"]), span(found["offset"] or "0 seconds"), found["zone"] or "UTC")


def span(told: str) -> timedelta:
    """'90 seconds'."""
    number, _, unit = told.partition(" ")
    if unit.rstrip("s") not in _UNITS:
        raise ValueError(f"{told!r} is no length of time: write it as '90 seconds'")
    return timedelta(microseconds=int(number) * _UNITS[unit.rstrip("s")])


def _step(told: dict[str, Any], times: _Times, clock: Micros, outputs: list[str]) -> Step:
    _only(told, "batch", "input ended", "silent until", "clock", "invalid", "table", "of", "file", *outputs)
    kinds = [word for word in ("batch", "input ended", "silent until") if word in told]
    if len(kinds) != 1:
        raise ValueError("a step is one of: batch, input ended, silent until")
    records = tuple(Record(*part) for part in times.records(told.get("batch", "nothing")))
    said = told.get("silent until") or told.get("clock")
    # Nothing comes from the future unless a transcript sets the clock.
    clock = times.time(said) if said else max([clock, *(r.time for r in records)])
    invalid = Counter(times.records(told.get("invalid", "nothing")))
    kind: Any = {"batch": "batch", "input ended": "ended", "silent until": "silent"}[kinds[0]]
    expected = {name: _outcome(told.get(name, {}), times) for name in outputs}
    table = dict(part.split() for part in _parts(told["table"])) if "table" in told else None
    compressed, _, damage = told.get("file", "").partition(", ")
    _one_of(compressed, "", *COMPRESSED)
    _one_of(damage, "", "cut short")
    return Step(kind, records, clock, invalid, expected, table, told.get("of"), compressed, bool(damage))


def _outcome(told: dict[str, Any], times: _Times) -> Outcome:
    _only(told, "writes", "late", "rejected", "closed until")
    writes: Written = Counter()
    if told.get("writes", "nothing") != "nothing":
        for bounds, counts in told["writes"].items():
            for part in counts.split(","):
                key, count = part.split()
                writes[key, times.bounds(bounds), int(count)] += 1
    closed = told.get("closed until")
    return Outcome(
        writes,
        _pairs(told.get("late", "nothing"), times),
        None if closed is None else times.time(closed),
        _pairs(told.get("rejected", "nothing"), times),
    )


def _pairs(told: str, times: _Times) -> Late:
    """'a at 10:00:59 for 10:00 to 10:01, …'."""
    found: Late = Counter()
    for part in _parts(told):
        record, _, bounds = part.partition(" for ")
        found[*times.record(record), times.bounds(bounds or "no window")] += 1
    return found


class _Times:
    """Times as people write them: with a day, or on the transcript's day; in UTC."""

    def __init__(self, day: str) -> None:
        self._day = day

    def time(self, told: str) -> Micros:
        """'10:00:00.001', or with a date before it."""
        whole = told if len(told.split()) == 2 else f"{self._day} {told}"
        found = to_micros(datetime.fromisoformat(whole).replace(tzinfo=UTC))
        assert found is not None
        return found

    def bounds(self, told: str) -> Bounds:
        """'10:00 to 10:01', or 'no window'."""
        if told == "no window":
            return None
        start, _, end = told.partition(" to ")
        return self.time(start), self.time(end)

    def record(self, told: str) -> tuple[str, Micros]:
        """'a at 10:00'."""
        key, at, time = told.partition(" at ")
        if not at:
            raise ValueError(f"{told!r} is no record: write it as 'a at 10:00'")
        return key, self.time(time)

    def records(self, told: str) -> list[tuple[str, Micros]]:
        """'a at 10:00, b at 10:01', or 'nothing'."""
        return [self.record(part) for part in _parts(told)]


def _parts(told: str) -> list[str]:
    return [] if told == "nothing" else [part.strip() for part in told.split(",")]


def _only(told: dict[str, Any], *words: str) -> None:
    if strange := [word for word in told if word not in words]:
        raise ValueError(f"{strange[0]!r} is no word here; there are: {', '.join(words)}")


def _one_of(told: str, *words: str) -> None:
    if told not in words:
        raise ValueError(f"{told!r}: write one of: {', '.join(words)}")
