"""An output with state of its own, as a user declares it. Pure data, checked when it is made."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from onlyonce.declare import ddl
from onlyonce.declare.declaration import declaration
from onlyonce.declare.outputs import newest
from onlyonce.declare.outputs.sinks import Delta, FileSink, Postgres
from onlyonce.declare.several import Several
from onlyonce.model import stored_names
from onlyonce.model.errors import Refused
from onlyonce.model.windows import Fixed, micros

if TYPE_CHECKING:
    from onlyonce.declare.outputs.output import Output

OWN = ("window_start", "window_end")
ANEW = stored_names.ANEW
"""What the start of a life has that begins with no state, and whose rows take the place of all that were there."""


@declaration
class Stateful:
    """A processor of the user's own that keeps state and timers for each key: Spark's `StatefulProcessor`, for
    `transformWithStateInPandas`.

    processor      'module:Class', made without arguments. It gets the records of a key as pandas frames, in order of
                   event time, and gives frames
    keys           the declared columns by which records are grouped: each of their values has a state and timers of its
                   own
    schema         the columns of the rows that it gives, in Spark's DDL
    timers_within  how far after the event time of a key's newest record timers are set, at most: when the input ends,
                   timers up to there fire
    state_version  another one says that what the state holds means something else now, though its schema is the same
    """

    processor: str
    keys: Several[str]
    schema: str
    timers_within: timedelta
    state_version: int = 1

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.]+:\w+", self.processor):
            raise Refused(f"Stateful: processor={self.processor!r} is not of the form 'module:Class'")
        if not self.keys:
            raise Refused(
                "Stateful: no keys", hint="keys='device': the declared columns whose values have a state of their own"
            )
        if twice := [column for n, column in enumerate(self.keys) if column in self.keys[:n]]:
            raise Refused(f"Stateful: the key {twice[0]!r} is named twice", hint="name it once")
        if micros(self.timers_within) < 0:
            raise Refused(f"Stateful: timers_within={self.timers_within} is negative", hint="0 where no timers are set")
        if self.timers_within % timedelta(milliseconds=1):
            raise Refused(
                f"Stateful: timers_within={self.timers_within} has parts of a millisecond",
                hint="round it: Spark's timers have none",
            )
        ddl.check("Stateful: schema", ddl.split(self.schema))
        self._check_columns()

    def columns(self) -> list[str]:
        """The names of the columns that the processor gives, in order."""
        return [ddl.named(part)[0] for part in ddl.split(self.schema)]

    def _check_columns(self) -> None:
        columns = self.columns()
        plain = [column.lower() for column in columns]
        if not columns:
            raise Refused("Stateful: schema has no column", hint="schema='device string, silent_since timestamp'")
        if twice := [column for n, column in enumerate(columns) if column.lower() in plain[:n]]:
            raise Refused(f"Stateful: schema has the column {twice[0]!r} twice", hint="rename one of them")
        if own := [column for column in columns if column.lower().startswith("oo_")]:
            raise Refused(f"Stateful: schema has {own[0]!r}, and 'oo_' is the platform's prefix", hint="rename it")
        if own := [column for column in columns if column.lower() in OWN]:
            raise Refused(
                f"Stateful: schema has {own[0]!r}, which is the platform's name for the window of a row, and these "
                "rows have none",
                hint="rename it: 'since timestamp, until timestamp', for example",
            )


def not_recomputed(output: Output) -> Refused:
    """Why no backfill computes it."""
    return Refused(
        f"output {output.name} has a state of its own: what its processor gives depends on all records of a key "
        "before, so no window can be computed "
        "again by itself",
        data="nothing was written",
        hint="late records stay out of it: a longer lateness waits for more of them. From the start it is "
        "computed by a new life: "
        f"onlyonce lineage new PIPELINE/{output.name} --yes",
    )


def check_anew(where: str, output: Output) -> None:
    """Raise Refused for an output with state whose rows a new life can't take the place of; `where` is what it is
    called."""
    if output.sink.write in ("append", "upsert") and isinstance(output.sink, Delta | Postgres):
        return
    raise Refused(
        f"{where} has a state of its own, and a new life would compute it from the start: what "
        f"{type(output.sink).__name__} has of it can't be taken back",
        data="nothing was changed; the rows that are written stay",
        hint="put its checkpoint back from a backup; or declare the output under another name, with a target of "
        "its own: it reads `events` from the start",
    )


def check_output(output: Output, window: object) -> None:
    """Raise Refused for what an output with state of its own can't have; `window` as it is declared."""
    where = f"output {output.name}: Stateful"
    others = (
        ("transform", output.transform),
        ("from_output", output.from_output),
        ("lookups", output.lookups),
        ("reject", output.reject),
        ("join", output.join),
    )
    for option, given in others:
        if given:
            raise Refused(
                f"{where} and {option}", hint="the processor alone makes the rows: leave it out, or declare two outputs"
            )
    if window is not None and not isinstance(window, Fixed):
        raise Refused(
            f"{where} counts its records by fixed windows, not {type(window).__name__}",
            hint="window=Fixed(…), or leave it out: an hour. The processor does not see it; sessions and the like "
            "are its own to make",
        )
    if output.is_early:
        raise Refused(f"{where} gives rows as its processor does", hint="leave panes out")
    if output.stable_input:
        raise Refused(
            f"{where} and stable_input: the rows would be those of the first try, and the state that of the last",
            hint="leave stable_input out, and let the processor give the same rows and state for the same records",
        )
    if output.late != "keep":
        raise Refused(
            f"{where} and late={output.late!r}: its rows are not by windows, so a window can't be computed again",
            hint="leave late out: a late record is kept and counted, and does not reach the processor. A longer "
            "lateness waits for more of them",
        )
    if output.on_backfill != "refuse":
        raise Refused(
            f"{where} and on_backfill={output.on_backfill!r}: no backfill computes it", hint="leave on_backfill out"
        )
    if (
        isinstance(output.sink, FileSink)
        or output.sink.write in ("increment", newest.HISTORY)
        or newest.deletes(output.sink)
    ):
        raise Refused(
            f"{where} appends or upserts the rows that its processor gives, and "
            f"{type(output.sink).__name__}(write={output.sink.write!r}) does more",
            hint="put them into a table, Delta() or Postgres(table=…), without deletes; or send them",
        )
    if output.sink.write == "upsert" and not newest.newest_by(output.sink):
        raise Refused(
            f"{where} with an upsert may give several rows of the same keys in one batch, and nothing says which "
            "is the newest",
            hint="newest_by='since' at the sink: the column of its rows that tells; or append the rows",
        )
