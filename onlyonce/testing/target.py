"""What a sink's table has after the rows that are written to it: appended, upserted or added up, as the output
declares.

Who calls it: `playing`. Raises Refused for two rows of one window with the same keys, as the sinks do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from onlyonce.declare.outputs.newest import HISTORY, IS_CURRENT, VALID_FROM, VALID_TO, deletes, newest_by
from onlyonce.declare.outputs.sinks import later_window_wins
from onlyonce.declare.pipeline import Output
from onlyonce.model.errors import Refused
from onlyonce.model.stored_names import OO_WINDOW

Row = dict[str, Any]
WINDOW = ("window_start", "window_end")


def window_of(row: Row) -> tuple[Any, ...]:
    """The window that a row is of; nothing but None where it has none."""
    return tuple(row.get(name) for name in WINDOW)


def newest_of(key: Callable[[Row], str], by: tuple[str, ...], rows: list[Row]) -> list[Row]:
    """Of the rows with the same keys the newest, by these columns; all rows where there are none.

    Two that are alike both stay.
    """
    if not by:
        return rows
    last: dict[str, tuple[Any, ...]] = {}
    for row in rows:
        last[key(row)] = max(last.get(key(row), _position(by, row)), _position(by, row))
    return [row for row in rows if _position(by, row) == last[key(row)]]


def _position(by: tuple[str, ...], row: Row) -> tuple[Any, ...]:
    if missing := [name for name in by if row.get(name) is None]:
        raise Refused(
            f"a row has no {missing[0]}, by which the newest is told: {row}",
            hint="give each row its position in the source",
        )
    return tuple(row[name] for name in by)


@dataclass
class Target:
    """The table of one output."""

    output: Output
    _rows: list[Row] = field(default_factory=list)
    _added: list[Row] = field(default_factory=list)
    _deleted: dict[str, Row] = field(default_factory=dict)
    _changes: dict[tuple[str, tuple[Any, ...]], Row] = field(default_factory=dict)

    def write(self, rows: list[Row]) -> None:
        """What a batch of the stream writes."""
        sink = self.output.sink
        if sink.write == "upsert":
            rows = newest_of(self._keys, newest_by(sink), rows)
        self._refuse_twins(rows)
        if sink.write == "increment":
            self._added += rows
        elif sink.write == HISTORY:
            self._changes |= {(self._keys(row), _position(newest_by(sink), row)): row for row in rows}
        elif newest_by(sink):
            self._upsert_newest(rows)
        elif sink.write == "upsert":
            self._upsert(rows)
        else:
            self._rows += rows

    def replace(self, rows: list[Row], windows: Iterable[tuple[Any, ...]]) -> None:
        """What a backfill writes in place of what is there of these windows."""
        gone = set(windows)
        self._rows = [row for row in self._rows if window_of(row) not in gone]
        self._added = [row for row in self._added if window_of(row) not in gone]
        self.write(rows)

    def rows(self) -> list[Row]:
        """The rows of the table, in order of their windows."""
        made = {"increment": self._sums, HISTORY: self._versions}.get(self.output.sink.write, lambda: self._rows)
        rows = made()
        return sorted((dict(row) for row in rows), key=lambda row: (str(window_of(row)), repr(row)))

    def _keys(self, row: Row) -> str:
        if missing := [key for key in self.output.sink.keys if key not in row]:
            raise Refused(
                f"output {self.output.name}: keys {missing} are not among its columns",
                hint=f"it has: {', '.join(row)} ({OO_WINDOW} gives window_start and window_end)",
            )
        return repr([row[key] for key in self.output.sink.keys])

    def _refuse_twins(self, rows: list[Row]) -> None:
        if self.output.sink.write not in ("upsert", "increment"):
            return
        there: set[Any] = set()
        for row in rows:
            one = (self._keys(row), window_of(row))
            if one in there and self.output.sink.write == "upsert":
                raise Refused(
                    f"output {self.output.name}: two rows of one window have the same keys: "
                    f"{ {key: row[key] for key in self.output.sink.keys} }",
                    hint="group by the keys, or declare the keys that tell the rows apart",
                )
            there.add(one)

    def _upsert(self, rows: list[Row]) -> None:
        known = {self._keys(row): row for row in self._rows}
        for row in rows:
            before = known.get(self._keys(row))
            later = later_window_wins("upsert", self.output.sink.keys, row)
            if before is None or not later or window_of(row) >= window_of(before):
                known[self._keys(row)] = row
        self._rows = list(known.values())

    def _upsert_newest(self, rows: list[Row]) -> None:
        by, told = newest_by(self.output.sink), deletes(self.output.sink)
        known = {self._keys(row): row for row in self._rows}
        for row in rows:
            key = self._keys(row)
            before = known.get(key, self._deleted.get(key))
            if before is not None and _position(by, before) > _position(by, row):
                continue
            here, there = (self._deleted, known) if told and row[told] else (known, self._deleted)
            there.pop(key, None)
            here[key] = {name: value for name, value in row.items() if name != told}
        self._rows = list(known.values())

    def _versions(self) -> list[Row]:
        """Each change of a history that is no delete, until the next one of its key."""
        told, places = deletes(self.output.sink), sorted(self._changes)
        found = []
        for place, after in zip(places, [*places[1:], None], strict=True):
            row = self._changes[place]
            following = self._changes[after] if after is not None and after[0] == place[0] else None
            if not (told and row[told]):
                stored = {name: value for name, value in row.items() if name != told}
                found.append(stored | {VALID_TO: following and following[VALID_FROM], IS_CURRENT: following is None})
        return found

    def _sums(self) -> list[Row]:
        keys = self.output.sink.keys
        sums: dict[str, Row] = {}
        for row in self._added:
            plain = {name: value for name, value in row.items() if name not in WINDOW or name in keys}
            there = sums.setdefault(self._keys(row), {**plain, **{name: None for name in plain if name not in keys}})
            for name, value in plain.items():
                if name not in keys and value is not None:
                    there[name] = value if there[name] is None else there[name] + value
        return list(sums.values())
