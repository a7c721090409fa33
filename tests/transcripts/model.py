"""What a transcript says should happen, computed in the plainest way: a list of records, looked through each time.

Only the arithmetic of windows and the rule for late records are the product's (`onlyonce.core`); how records are kept,
merged and counted is written here once more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace

from onlyonce.core.frontier import Frontier, closed_until, is_late
from onlyonce.core.triggers import AfterRecords, AfterTime, Trigger
from onlyonce.core.windows import Joined, Micros, Session, micros, reach
from tests.transcripts.story import Bounds, Declared, Late, Outcome, Record, Step, Story, Written

NOTHING = Outcome(Counter(), Counter())


@dataclass
class OutputModel:
    """One output: the records that it was given in time, and which of its windows it has written."""

    declared: Declared
    held: list[tuple[Record, Bounds]] = field(default_factory=list)
    met: set[int] = field(default_factory=set)
    waiting: dict[Bounds, list[Micros]] = field(default_factory=dict)

    def step(
        self, before: Frontier, after: Frontier, records: list[Record], table: dict[str, str], clock: Micros
    ) -> Outcome:
        """What it writes and calls late when these records come between two frontiers, its table has these rows, and
        the clock shows this."""
        late: Late = Counter()
        rejected: Late = Counter()
        came: list[tuple[Record, Bounds]] = []
        for record in records:
            for bounds in self._windows(record):
                pair = record.key, record.time, None if self._session else bounds
                if self._is_late(before, record, bounds):
                    late[pair] += 1
                elif record.key in self.declared.rejects:
                    rejected[pair] += 1
                else:
                    came.append((self._joined(record, table), bounds))
        self.held += came
        closed = self._closed(after)
        if self.declared.silence:
            writes = self._silences(closed)
        else:
            writes = self._joins(len(came), closed) if self.declared.join else self._writes(came, closed, clock)
        return Outcome(writes, late, closed, rejected)

    def _joins(self, came: int, closed: Micros | None) -> Written:
        """The pairs that are new, and what has found no partner when its bound has passed.

        A key in capitals is of the left side.
        """
        found: Written = Counter()
        window = self.declared.window
        assert isinstance(window, Joined)
        for at, (mine, bounds) in enumerate(self.held):
            for other_at, (other, _) in enumerate(self.held):
                pair = (
                    mine.key.isupper()
                    and other.key == mine.key.lower()
                    and abs(mine.time - other.time) <= micros(window.within)
                )
                if pair:
                    found[f"{mine.key}+{other.key}", bounds, 1] += max(at, other_at) >= len(self.held) - came
                    self.met |= {at, other_at}
        for at, (one, bounds) in enumerate(self.held):
            if at not in self.met and closed is not None and one.time <= closed:
                self.met.add(at)
                side = "left" if one.key.isupper() else "right"
                found[one.key, bounds, 1] += self.declared.join in (side, "full")
        return +found

    def _silences(self, closed: Micros | None) -> Written:
        """The keys that have been silent for the gap since a record, as far as no record in time can end that, with
        their records up to there."""
        found: Written = Counter()
        assert self.declared.silence is not None
        gap = micros(self.declared.silence)
        until = None if closed is None else closed + reach(self.declared.window)
        for at, (one, _) in enumerate(self.held):
            times = [other.time for other, _ in self.held if other.key == one.key]
            if at in self.met or until is None or one.time + gap > until:
                continue
            self.met |= {
                place for place, (other, _) in enumerate(self.held) if (other.key, other.time) == (one.key, one.time)
            }
            if not any(one.time < time <= one.time + gap for time in times):
                found[one.key, None, sum(time <= one.time for time in times)] += 1
        return found

    def _joined(self, record: Record, table: dict[str, str]) -> Record:
        return Record(table.get(record.key, "none"), record.time) if self.declared.looks_up else record

    @property
    def _session(self) -> Session | None:
        return self.declared.window if isinstance(self.declared.window, Session) else None

    def _windows(self, record: Record) -> list[Bounds]:
        window = self.declared.window
        if window is None or isinstance(window, Session):
            return [None]
        return list(window.assign(record.time))

    def _is_late(self, before: Frontier, record: Record, bounds: Bounds) -> bool:
        if self.declared.window is None:
            return False
        end = bounds[1] if bounds else 0
        return is_late(before, self.declared.window, micros(self.declared.watermark_delay), record.time, end)

    def _closed(self, after: Frontier) -> Micros | None:
        window = self.declared.window
        return None if window is None else closed_until(after, window, micros(self.declared.watermark_delay))

    def _writes(self, came: list[tuple[Record, Bounds]], closed: Micros | None, clock: Micros) -> Written:
        if isinstance(self.declared.panes, Trigger):
            return self._panes(self.declared.panes, came, closed, clock)
        if self.declared.panes == "early":
            touched = {(record.key, bounds) for record, bounds in came}
            return counted([one for one in self.held if (one[0].key, one[1]) in touched])
        if self.declared.window is None:
            return Counter((record.key, None, 1) for record, _ in came)
        groups = merged(self.held, self._session) if self._session else self.held
        done = [one for one in groups if closed is not None and one[1] is not None and one[1][1] <= closed]
        self.held = [one for one in groups if one not in done]
        return counted(done)

    def _panes(
        self, trigger: Trigger, came: list[tuple[Record, Bounds]], closed: Micros | None, clock: Micros
    ) -> Written:
        """All of each window that closes, or that has enough records which came since its last pane, or the first of
        them long ago."""
        for _, bounds in came:
            self.waiting.setdefault(bounds, []).append(clock)
        done = {bounds for _, bounds in self.held if closed is not None and bounds is not None and bounds[1] <= closed}
        due = {
            bounds
            for bounds, times in self.waiting.items()
            if (not isinstance(trigger, AfterTime) and len(times) >= trigger.records)
            or (not isinstance(trigger, AfterRecords) and clock - times[0] >= micros(trigger.time))
        }
        written = counted([one for one in self.held if one[1] in done | due])
        self.held = [one for one in self.held if one[1] not in done]
        self.waiting = {bounds: times for bounds, times in self.waiting.items() if bounds not in done | due}
        return written


def merged(held: list[tuple[Record, Bounds]], session: Session) -> list[tuple[Record, Bounds]]:
    """Each record with the bounds of the session that it is in, key by key."""
    by_key: dict[str, list[Record]] = defaultdict(list)
    for record, _ in sorted(held, key=lambda one: one[0].time):
        by_key[record.key].append(record)
    found: list[tuple[Record, Bounds]] = []
    for records in by_key.values():
        burst: list[Record] = []
        for record in records:
            if burst and record.time > session.last_end(burst[-1].time):
                found += _burst(burst, session)
                burst = []
            burst.append(record)
        found += _burst(burst, session)
    return found


def _burst(burst: list[Record], session: Session) -> list[tuple[Record, Bounds]]:
    return [(record, (burst[0].time, session.last_end(burst[-1].time))) for record in burst]


def counted(held: list[tuple[Record, Bounds]]) -> Written:
    """The records of each key in each window."""
    counts = Counter((record.key, bounds) for record, bounds in held)
    return Counter((key, bounds, count) for (key, bounds), count in counts.items())


def play(story: Story) -> list[dict[str, Outcome]]:
    """What each output does at each step; of a bounded run all of it at the last one."""
    if story.bounded:
        return [*({o.name: NOTHING for o in story.outputs} for _ in story.steps[1:]), _play_bounded(story)]
    models = {declared.name: OutputModel(declared) for declared in story.outputs if not declared.result_of}
    known, arrived, table = Frontier(), 0, dict[str, str]()
    sources = Sources(story)
    found: list[dict[str, Outcome]] = []
    for step in story.steps:
        records = [] if step.cut_short else [record for record in step.records if not is_invalid(record, step, story)]
        after = sources.after(known, step, records) if story.sources else _after(known, step, records, story, arrived)
        table = table if step.table is None else step.table
        made = {name: model.step(known, after, records, table, step.clock) for name, model in models.items()}
        found.append({declared.name: _of_result(declared, story, made) for declared in story.outputs})
        known = after
        arrived = step.clock if step.kind == "batch" else arrived
    return found


def _play_bounded(story: Story) -> dict[str, Outcome]:
    records = [record for step in story.steps for record in step.records if not is_invalid(record, step, story)]
    end = Frontier().after_batch(max(record.time for record in records)).declared_ended()
    roots = [declared for declared in story.outputs if not declared.result_of]
    made = {declared.name: OutputModel(declared).step(Frontier(), end, records, {}, 0) for declared in roots}
    return {declared.name: _of_result(declared, story, made) for declared in story.outputs}


def _of_result(declared: Declared, story: Story, made: dict[str, Outcome]) -> Outcome:
    """What one result has of the rows of its function; the books of late records are those of the output that has the
    function."""
    if declared.result_of:
        whole = made[declared.result_of]
        return Outcome(Counter({row: n for row, n in whole.writes.items() if row[0] in declared.keys}), Counter())
    whole = made[declared.name]
    others = {key for other in story.outputs if other.result_of == declared.name for key in other.keys}
    return Outcome(
        Counter({row: n for row, n in whole.writes.items() if row[0] not in others}),
        whole.late,
        whole.closed,
        whole.rejected,
    )


class Sources:
    """How far each of several sources is, since when nothing has come of it, and which are idle: looked at after each
    step."""

    def __init__(self, story: Story) -> None:
        self._names, self._idle_after = story.sources, micros(story.source_idle) if story.source_idle else 0
        self._progress: dict[str, Micros] = {}
        self._last: dict[str, Micros] = {}
        self._idle: set[str] = set()

    def after(self, known: Frontier, step: Step, records: list[Record]) -> Frontier:
        """The frontier once a step has come."""
        if step.kind == "ended":
            return replace(known, ended=max(self._progress.values()))
        assert step.source in self._names, "a batch of one of several sources says whose it is"
        for name in self._names:
            self._last.setdefault(name, step.clock)
        self._last[step.source] = step.clock
        self._idle.discard(step.source)
        self._progress[step.source] = max([*(record.time for record in records), self._progress.get(step.source, 0)])
        awake = self._least(known)
        self._idle |= {name for name in self._names if step.clock - self._last[name] >= self._idle_after}
        return self._least(awake)

    def _least(self, known: Frontier) -> Frontier:
        awake = [self._progress.get(name) for name in self._names if name not in self._idle]
        if None in awake:
            return known
        return known.after_batch(
            min(
                [max_event_time for max_event_time in awake if max_event_time is not None],
                default=max(self._progress.values()),
            )
        )


def is_invalid(record: Record, step: Step, story: Story) -> bool:
    """Whether a record is further ahead of the clock than is allowed."""
    return record.time > step.clock + micros(story.max_ahead)


def _after(known: Frontier, step: Step, records: list[Record], story: Story, arrived: Micros) -> Frontier:
    if step.kind == "ended":
        return known.declared_ended()
    if step.kind == "silent":
        assert story.idle_after is not None, "a transcript with silence says 'idle after'"
        idle = micros(story.idle_after)
        return known if step.clock - arrived < idle else known.fallen_silent(step.clock, idle)
    return known.after_batch(max((record.time for record in records), default=None))
