"""An output of a pipeline as a user declares it, and what a backfill does with its rows.

Pure data, checked when it is made. `pipeline` checks the outputs against each other.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Literal

from onlyonce.api import sinks
from onlyonce.api.declaration import (
    NO_FUNCTION,
    NONE,
    Named,
    Several,
    at_option,
    check_name,
    check_one_of,
    declaration,
    declared_at,
    not_a_path,
)
from onlyonce.api.joins_and_state import OWN, Join, Lookup, Stateful
from onlyonce.api.sinks import Sink
from onlyonce.core.durations import in_words
from onlyonce.core.errors import Refused
from onlyonce.core.near_names import choose
from onlyonce.core.stored_names import IS_CURRENT, VALID_FROM, VALID_TO, WINDOW_END, WINDOW_START
from onlyonce.core.triggers import AfterRecords, Trigger
from onlyonce.core.windows import Chained, Fixed, Joined, Session, Timed, Window


def not_backfilled(output: Output) -> Refused:
    """Return the refusal of a backfill of an output with its own state."""
    return Refused(
        f"output {output.name} has a state of its own: what its processor gives depends on all records of a key "
        "before, so no window can be computed again by itself",
        data="nothing was written",
        hint="late records stay out of it: a longer watermark delay waits for more of them. From the start it is "
        f"computed by a new incarnation: onlyonce reset PIPELINE/{output.name} --yes",
    )


def check_from_start(where: str, output: Output) -> None:
    """Raise Refused for an output with state whose rows a new incarnation can't replace; `where` names it in errors."""
    if output.sink.write in ("append", "upsert") and output.sink.starts_over:
        return
    raise Refused(
        f"{where} has a state of its own, and a new incarnation would compute it from the start: what "
        f"{output.sink.kind} has of it can't be withdrawn",
        data="nothing was changed; the rows that are written stay",
        hint="put its checkpoint back from a backup; or declare the output under another name, with a target of "
        "its own: it reads `events` from the start",
    )


def check_output(output: Output, window: object) -> None:
    """Raise Refused for options that an output with its own state can't have; `window` as it is declared."""
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
            hint="window=Fixed(timedelta(hours=1)), or leave it out: an hour. The processor does not see it; "
            "sessions and the like are its own to make",
        )
    if output.is_early:
        raise Refused(f"{where} gives rows as its processor does", hint="leave panes out")
    if output.late != "keep":
        raise Refused(
            f"{where} and late={output.late!r}: its rows are not by windows, so a window can't be computed again",
            hint="leave late out: a late record is kept and counted, and does not reach the processor. A longer "
            "watermark_delay waits for more of them",
        )
    if output.on_backfill != "refuse":
        raise Refused(
            f"{where} and on_backfill={output.on_backfill!r}: no backfill computes it", hint="leave on_backfill out"
        )
    if output.sink.writes_files or output.sink.write in ("increment", sinks.HISTORY) or output.sink.delete_when:
        raise Refused(
            f"{where} appends or upserts the rows that its processor gives, and "
            f"{output.sink.kind}(write={output.sink.write!r}) does more",
            hint="put them into a table, Delta() or Postgres(table=…), without deletes; or send them",
        )
    if output.sink.write == "upsert" and not output.sink.sequence_by:
        raise Refused(
            f"{where} with an upsert may give several rows of the same keys in one batch, and nothing says which "
            "is the newest",
            hint="sequence_by='since' at the sink: the column of its rows that tells; or append the rows",
        )


# The output itself.

TRIGGERS = "AfterRecords(…), AfterTime(…), or both joined by |"


@declaration
class Output:
    """One result of a pipeline: a function over the kept records, by window, to one sink.

    name          unique in the pipeline
    transform     a function, or its import path 'module:function'; takes a DataFrame with the declared columns and
                  the platform's (oo_window, oo_event_time, oo_ingestion_time), returns a DataFrame. With a window it
                  groups by oo_window. For several results it returns a dict: each output's name and its DataFrame.
                  Leave it out for the other outputs: they are results of the function of their `from_output`
    sink          where the rows go
    window        Fixed, Sliding or Session; None: never late, never closes
    watermark_delay      how long, in event time, a window waits for stragglers after its end
    panes         'on_time': a window's rows once, when it closes; Spark keeps the state of the open ones. 'at_close':
                  the same rows, from all records of the window at once, which are read from `events` when it closes:
                  sooner, without a state, for short windows. 'early': with every batch the rows that it changed (needs
                  upsert); in files and with pane_column all rows of the windows that it changed; of sessions those of
                  all open ones, which replace the last pane (Delta, Postgres or files). AfterRecords(1000),
                  AfterTime(timedelta(minutes=5)): all rows of an open window, after so many more records or so much
                  time, and when it closes (needs a window, and upsert, files or pane_column). AfterRecords(…) |
                  AfterTime(…): by whichever is first
    pane_column   a column that the platform adds to the rows: the number of the window's pane, from 0. With it an
                  append, or a sink that sends, takes early panes: each pane has all rows of its window so far, next to
                  the panes before it. A reader takes the rows with the greatest number of each window
    from_output   make this output from the closed panes of that one, in the same batch; without a transform, from the
                  result that its function returns under this output's name. With a window of its own (Fixed): from its
                  closed windows. A closed window belongs to the window that holds its last moment
    stable_input  whether rows are stored (staged) before they are written, so that a replay writes the same rows. None:
                  they are if Spark's plan of the function has an expression of another value at each run, such as
                  rand(); `onlyonce check` says so. Nothing is known of a Python function: True if it is not
                  deterministic. False: never. A processor's state (stateful) must be the same for the same records
                  in any case
    late          'keep': late rows wait in `events` for a backfill. 'backfill': at the end of each run their windows
                  are recomputed with them, as by a backfill. AfterRecords(100) | AfterTime(timedelta(hours=1)): only
                  the windows with so many late records, or with one that waits for so long
    on_backfill   what a backfill does if the sink's rows don't have their window and so can't be withdrawn: 'refuse'
                  the backfill, 'skip' this sink, 'resend' the new rows (an upsert overwrites the old rows; an external
                  sink receives the new rows under new keys), or 'correct' an increment: a second table keeps what each
                  window added, and the difference is added
    lookups       tables that the function gets in addition to its rows, each by its name: def f(rows, customers)
    join          in place of a transform: the rows of two functions, joined by key and event time. Rows come as they
                  find each other. A row's window, an hour if none is declared (Fixed only), is the window of its left
                  record; a backfill replaces rows by it
    reject        'module:function' of the rows that the function must not get: def unsound(rows) returns a string
                  Column, the reason why a record is rejected, or null. It sees the declared columns, oo_event_time and
                  oo_ingestion_time
    stateful      in place of a transform: a processor with a state and timers for each key. Its rows come as it yields
                  them, and have no window; window (an hour, Fixed only) says how its records are counted, and how far
                  the end of an input reaches
    """

    name: str
    transform: Named = NO_FUNCTION
    sink: Sink
    window: Window | None = None
    watermark_delay: timedelta = timedelta(0)
    panes: Literal["on_time", "at_close", "early"] | Trigger = "on_time"
    pane_column: str | None = None
    from_output: str | None = None
    stable_input: bool | None = None
    late: Literal["keep", "backfill"] | Trigger = "keep"
    on_backfill: Literal["refuse", "skip", "resend", "correct"] = "refuse"
    lookups: Several[Lookup] = NONE
    reject: Named = NO_FUNCTION
    join: Join | None = None
    stateful: Stateful | None = None

    def __post_init__(self) -> None:
        where = f"output {self.name}"
        check_name("output", self.name)
        self.sink.check_length(self.name)
        if not isinstance(self.late, Trigger):
            check_one_of(where, "late", self.late, ("keep", "backfill"), TRIGGERS)
        check_one_of(where, "on_backfill", self.on_backfill, ("refuse", "skip", "resend", "correct"))
        if self.on_backfill == "resend" and not (self.sink.write == "upsert" or self.sink.is_external):
            raise Refused(
                f"output {self.name}: resending would write rows again that its {self.sink.write} has written",
                hint="'resend' is for an upsert, and for sinks that send. An append needs nothing, a backfill "
                "replaces its rows; an increment can 'skip' or 'correct'",
            )
        if self.on_backfill == "correct" and (
            self.sink.write != "increment" or WINDOW_START in self.sink.keys or not (self.window or self.from_output)
        ):
            raise Refused(
                f"output {self.name}: only an increment whose windows add to one row can be corrected",
                hint="leave on_backfill out: a backfill replaces rows that have their window",
            )
        if self.join:
            _check_join(self)
            object.__setattr__(self, "window", Joined.of(self.window or HOUR, self.join.within))  # type: ignore[arg-type]
        if self.stateful:
            check_output(self, self.window)
            object.__setattr__(self, "window", Timed.of(self.window or HOUR, self.stateful.timers_within))  # type: ignore[arg-type]
        if self.late_trigger and self.window is None:
            raise Refused(f"output {self.name}: late={self.late!r} needs windows of its own", hint="leave it out here")
        if not self.functions and not self.from_output:
            raise Refused(
                f"output {self.name} has no transform",
                hint="transform='module:function'; only a result of another output's function has none: "
                "from_output names that output",
            )
        _check_lookups(self)
        _check_reject(self)
        if self.transform and not re.fullmatch(r"[\w.]+:\w+", self.transform):
            with at_option(self, "transform"):
                raise not_a_path(f"output {self.name}: transform {self.transform!r}", "transform")
        if self.watermark_delay % timedelta(milliseconds=1):
            raise Refused(
                f"output {self.name}: watermark_delay {in_words(self.watermark_delay)} has parts of a millisecond",
                hint="round it",
            )
        if self.watermark_delay < timedelta(0):
            raise Refused(
                f"output {self.name}: watermark_delay {in_words(self.watermark_delay)} is negative",
                hint="0 waits for nothing",
            )
        if not isinstance(self.panes, Trigger):
            check_one_of(where, "panes", self.panes, ("on_time", "at_close", "early"), TRIGGERS)
        _check_trigger(self)
        _check_at_close(self)
        _check_pane_column(self)
        if self.panes == "early" and not _takes_panes(self):
            raise Refused(
                f"output {self.name}: early panes give the same window again, which {self.sink.write} would add up",
                hint=_instead_of_adding(self),
            )
        if self.has_early_sessions:
            _check_early_sessions(self)
        if self.window is None and self.watermark_delay:
            raise Refused(
                f"output {self.name}: watermark_delay without a window",
                hint="take watermark_delay out, or add window=Fixed(timedelta(hours=1)): without a window nothing is "
                "late",
            )

    @property
    def trigger(self) -> Trigger | None:
        """Return what triggers panes with all rows of an open window; None if no such panes are written.

        A file is never changed, and a numbered row neither. So an early pane of files, and one with a number, has all
        rows of its window too, and not only changed rows. So has an early pane of sessions.
        """
        of_all_rows = self.sink.writes_files or self.pane_column or self.has_early_sessions
        if self.panes == "early" and self.window is not None and of_all_rows:
            return AfterRecords(1)
        return self.panes if isinstance(self.panes, Trigger) else None

    @property
    def late_trigger(self) -> Trigger | None:
        """Return when a window is recomputed with its late records at the end of a run; None: never."""
        return AfterRecords(1) if self.late == "backfill" else None if self.late == "keep" else self.late

    @property
    def is_early(self) -> bool:
        """Return whether the output writes windows before they close, and writes them again."""
        return self.panes not in ("on_time", "at_close")

    @property
    def has_early_sessions(self) -> bool:
        """Return whether the output writes open sessions: each pane replaces all of them."""
        return self.is_early and isinstance(self.window, Session)

    @property
    def gives_changed_rows(self) -> bool:
        """Return whether a batch gives only the rows that it has changed, which Spark's state knows."""
        return self.panes == "early" and self.trigger is None

    @property
    def gets_whole_windows(self) -> bool:
        """Return whether its function gets all records of a window at once from `events`, without a state in Spark."""
        return self.panes == "at_close" or self.trigger is not None or isinstance(self.window, Chained)

    @property
    def made_beside(self) -> str | None:
        """Return the output in whose batches its rows are made; None if it has its own query.

        An output with windows of its own has its own query.
        """
        return None if isinstance(self.window, Chained) else self.from_output

    @property
    def is_result(self) -> bool:
        """Return whether its rows are one of several results of another output's function."""
        return not self.functions

    @property
    def functions(self) -> tuple[str, ...]:
        """Return the 'module:function' names: its transform, the two sides of its join, or its processor."""
        if self.stateful:
            return (self.stateful.processor,)
        if self.join:
            return (self.join.left, self.join.right)
        return (self.transform,) if self.transform else ()

    @property
    def has_windows(self) -> bool:
        """Return whether its rows have windows that can be recomputed; rows of a processor with state have none."""
        return self.window is not None and self.stateful is None

    @property
    def gives_as_it_comes(self) -> bool:
        """Return whether its batches yield rows at any time, not when a window closes: a join or a processor does."""
        return self.join is not None or self.stateful is not None

    @property
    def made_by(self) -> str:
        """Return what makes its rows, for messages."""
        return " and ".join(self.functions) or f"the function of {self.from_output}"


HOUR = Fixed(timedelta(hours=1))
"""The windows of joined rows, if none are declared."""


def _check_join(output: Output) -> None:
    """Raise Refused for options that a join can't have."""
    where = f"output {output.name}: a join"
    for option, given in (
        ("transform", output.transform),
        ("from_output", output.from_output),
        ("lookups", output.lookups),
        ("reject", output.reject),
    ):
        if given:
            raise Refused(
                f"{where} and {option}",
                hint="the rows of a join come from its two sides: leave it out, or declare two outputs",
            )
    if not isinstance(output.window or HOUR, Fixed):
        raise Refused(
            f"{where} has rows by fixed windows, not {type(output.window).__name__}",
            hint="window=Fixed(timedelta(hours=1)), by which a backfill replaces rows; how near rows must be to "
            "join is the join's own `within`",
        )
    if output.is_early:
        raise Refused(f"{where} gives each row once, as it finds its partner", hint="leave panes out")
    if output.sink.writes_files or output.sink.write in ("upsert", "increment"):
        raise Refused(
            f"{where} appends its rows as they come, which {output.sink.kind}(write={output.sink.write!r}) can't take",
            hint="append them to a table, Delta() or Postgres(table=…), or send them",
        )


def _check_lookups(output: Output) -> None:
    names = [lookup.name for lookup in output.lookups]
    if twice := [name for n, name in enumerate(names) if name in names[:n]]:
        raise Refused(f"output {output.name}: two lookups are named {twice[0]!r}", hint="rename one of them")
    if names and not output.transform:
        raise Refused(
            f"output {output.name}: lookups, and no function that gets them",
            hint="declare them at the output that has the function",
        )
    if names and output.late_trigger and isinstance(output.window, Session):
        raise Refused(
            f"output {output.name}: late={output.late!r} of sessions with lookups: a late row may merge sessions that "
            "saw different versions",
            hint="late='keep', and fold late rows in by hand: onlyonce backfill … --lookups now",
        )


def _check_trigger(output: Output) -> None:
    if output.trigger is None:
        return
    if output.window is None:
        raise Refused(
            f"output {output.name}: {type(output.trigger).__name__} makes panes of windows, and it has none",
            hint="give it a window; panes='early' writes totals with each batch",
        )
    if not _takes_panes(output):
        raise Refused(
            f"output {output.name}: each pane has all rows of its window again, which {output.sink.write} would add up",
            hint=_instead_of_adding(output),
        )


def _takes_panes(output: Output) -> bool:
    """Return whether the sink replaces a window's rows, or has each pane next to the panes before it."""
    return output.sink.write in ("upsert", "files") or output.pane_column is not None


def _instead_of_adding(output: Output) -> str:
    if output.sink.write == "increment":
        return "give the sink write='upsert' and keys: an increment takes each window once, when it closes"
    return (
        "write='upsert' and keys replace the rows; or pane_column='pane' numbers the panes of a window in a column of "
        "their own, and readers take the rows with the greatest number of each window"
    )


PANE_COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")


def _check_pane_column(output: Output) -> None:
    if output.pane_column is None:
        return
    name, where = output.pane_column, f"output {output.name}: pane_column={output.pane_column!r}"
    if not PANE_COLUMN.fullmatch(name) or name.lower().startswith("oo_") or name.lower() in OWN:
        raise Refused(
            f"{where} can't be the name of the column",
            hint="pane_column='pane': a letter, then letters, digits and _, at most 63; 'oo_…' and the columns of the "
            "window are the platform's",
        )
    if not (output.sink.write == "append" or output.sink.is_external):
        raise Refused(
            f"{where} numbers panes that lie next to each other, and {output.sink.kind}(write={output.sink.write!r}) "
            + ("names its files by their pane" if output.sink.writes_files else "has one row in place of them"),
            hint="leave pane_column out; or append the rows",
        )
    if output.window is None or isinstance(output.window, Session):
        has = "has no window" if output.window is None else "has sessions, which merge and so change their window"
        raise Refused(f"{where} numbers the panes of a window, and the output {has}", hint="leave pane_column out")
    if not output.is_early:
        raise Refused(
            f"{where} numbers the panes of open windows, and panes={output.panes!r} writes each window once",
            hint="leave pane_column out; or panes=AfterRecords(1000)",
        )


def _check_early_sessions(output: Output) -> None:
    """Raise Refused if a pane could not replace the rows of all open sessions, or could not find them."""
    where, sink = f"output {output.name}: early panes of sessions", output.sink
    stay = "nothing was written; rows of a pane would stay under keys of a session that no longer exists"
    if not sink.writes_files and not sink.replaces_open:
        raise Refused(
            f"{where} replace the rows of all open sessions in one commit, which {sink.kind} can't do",
            data=stay,
            hint="sink=Delta(write='upsert', …), Postgres(write='upsert', …) or FileSink(…); or leave panes out",
        )
    if not sink.writes_files and not {WINDOW_START, WINDOW_END} & {*sink.keys}:
        raise Refused(
            f"{where}: the sink's keys name no window, so rows of open and of closed sessions would be one row",
            data=stay,
            hint=f"put {WINDOW_START} among the keys of the sink",
        )
    if output.lookups:
        raise Refused(
            f"{where}: two panes may see different versions of its lookups, and then the same records have other "
            "sessions",
            data="nothing was written",
            hint="leave panes out, or join the lookup in the readers of the table",
        )


def _check_at_close(output: Output) -> None:
    if output.panes != "at_close":
        return
    where = f"output {output.name}: panes='at_close' gives a function all records of a window"
    if output.gives_as_it_comes:
        raise Refused(f"{where}, and {output.made_by} gives rows as records come", hint="leave panes out")
    if output.window is None or isinstance(output.window, Session):
        has = (
            "has no window"
            if output.window is None
            else "has sessions, whose records are known only once they are merged"
        )
        raise Refused(
            f"{where}, and it {has}", hint="window=Fixed(timedelta(hours=1)) or Sliding(…); or leave panes out"
        )


def _check_reject(output: Output) -> None:
    if not output.reject:
        return
    if output.from_output:
        raise Refused(
            f"output {output.name}: its rows are made from those of {output.from_output}, and only records can be "
            "rejected",
            hint=f"declare reject at {output.from_output}, or filter in the function of {output.name}",
        )
    if not re.fullmatch(r"[\w.]+:\w+", output.reject):
        raise Refused(f"output {output.name}: reject {output.reject!r} is not of the form 'module:function'")


def check_rows(output: Output, types: dict[str, str]) -> None:
    """Raise Refused for rows without a declared column, with an incomparable key, or with an unordered sequence_by.

    `types`: column → Spark's type.
    """
    sink = output.sink
    where = f"{declared_at(sink) or declared_at(output)}output {output.name}"
    for name in (*sink.sequence_by, *filter(None, [sink.delete_when])):
        if name not in types:
            raise Refused(
                f"{where}: {name!r} is not a column of what {output.made_by} gives",
                data="nothing was read or written",
                hint=choose(name, types),
            )
    for name in getattr(sink, "keys", ()):
        if "map<" in types.get(name, ""):
            raise Refused(
                f"{where}: column {name} is {types[name]}, and is a key: Spark and the sinks can't compare maps",
                data="nothing was read or written",
                hint="take the entries that make the key as columns of their own, or the map as a string: F.to_json",
            )
    for name in sink.sequence_by:
        if types[name].partition("(")[0] not in sinks.ORDERED:
            raise Refused(
                f"{where}: sequence_by={name!r} is of type {types[name]}, which has no order that all parts agree on",
                data="nothing was read or written",
                hint=f"one of: {', '.join(sinks.ORDERED)}",
            )
    if sink.write == sinks.HISTORY:
        _check_history(where, types)
    if (told := sink.delete_when) and types[told] != "boolean":
        raise Refused(
            f"{where}: delete_when={told!r} is of type {types[told]}, and not a boolean",
            data="nothing was read or written",
            hint=f"{told} = (op = 'd'), for example",
        )


def _check_history(where: str, types: dict[str, str]) -> None:
    if types.get(VALID_FROM) != "timestamp":
        raise Refused(
            f"{where}: a history needs to know when each version begins, and {VALID_FROM!r} is not a column of "
            "type timestamp",
            data="nothing was read or written",
            hint=f"F.col('changed_at').alias({VALID_FROM!r}), for example",
        )
    if taken := [name for name in (VALID_TO, IS_CURRENT) if name in types]:
        raise Refused(
            f"{where}: {taken[0]!r} is found by the platform, from the versions of a key",
            data="nothing was read or written",
            hint="give the column another name",
        )


# What a backfill does with the rows that an output has written.


def what_to_do(output: Output) -> str:
    """Return how a backfill changes an output's sink: 'replace', 'correct', 'resend' or 'skip'. Raise Refused.

    Rows can be replaced if each row belongs to one window and has the window in a column. An append always does; an
    upsert does if the window is among the keys.
    """
    sink = output.sink
    if output.stateful:
        raise not_backfilled(output)
    if sink.is_external:
        return _of_sent(output)
    carried = {"append": True, "files": True, "upsert": {WINDOW_START, WINDOW_END} & {*sink.keys}}
    if carried.get(sink.write, WINDOW_START in sink.keys):
        return "replace"
    if output.on_backfill == "refuse":
        raise Refused(
            f"output {output.name}: what it has {sink.write}ed can't be withdrawn, since its rows don't say their "
            "window",
            data="nothing was written",
            hint="put window_start among the keys (of a new table), or declare what a backfill does: "
            "on_backfill='skip' leaves this sink as it is"
            + (
                ", 'resend' upserts the new rows over the old"
                if sink.write == "upsert"
                else ", 'correct' (for a new table) keeps what each window added and adds the difference"
            ),
        )
    return output.on_backfill


def _of_sent(output: Output) -> str:
    """Return what a backfill does with an external sink, whose rows can't be withdrawn. Raise Refused."""
    if output.on_backfill == "refuse":
        raise Refused(
            f"output {output.name}: what it has sent ({output.sink.write}) can't be withdrawn",
            data="nothing was written or sent",
            hint="declare on_backfill='skip' to leave this sink as it is: it keeps the results of the stream; or "
            "'resend' to send the recomputed rows as well, as new ones",
        )
    return output.on_backfill
