"""Declarations of an output in addition to its function and window: a join, lookups, a processor with state.

Pure data, checked when it is made. `outputs` checks it against the other options of its output.
"""

from __future__ import annotations

import re
from datetime import timedelta
from keyword import iskeyword
from typing import Literal

from onlyonce.api import ddl
from onlyonce.api.declaration import Named, Several, at_option, check_name, check_one_of, declaration, not_a_path
from onlyonce.api.sinks import Delta, Postgres
from onlyonce.core import stored_names
from onlyonce.core.durations import in_source
from onlyonce.core.errors import Refused
from onlyonce.core.stored_names import WINDOW_END, WINDOW_START
from onlyonce.core.windows import micros

KINDS = ("inner", "left", "right", "full")


@declaration
class Join:
    """Rows of two functions over the pipeline's records, joined by key if their event times are near each other.

    left, right  'module:function', as a transform: takes the records and selects the records of its side, with the
                 columns that it needs. It keeps the key and oo_event_time; it does not aggregate
    on           the columns that both sides have and by whose values rows are joined; a null is equal to nothing
    within       the bound: rows join if their event times are at most so far apart, whichever is first
    kind         'inner'. 'left', 'right' and 'full' also give the rows of that side, or of both, that have found no
                 partner when the bound has passed, with nulls
    """

    left: Named
    right: Named
    on: Several[str]
    within: timedelta
    kind: Literal["inner", "left", "right", "full"] = "inner"

    def __post_init__(self) -> None:
        for side, function in (("left", self.left), ("right", self.right)):
            if not re.fullmatch(r"[\w.]+:\w+", function):
                raise not_a_path(f"Join: {side}={function!r}", side)
        check_one_of("Join", "kind", self.kind, KINDS)
        if not self.on:
            raise Refused(
                "Join: no key", hint="on='order_id': the columns that both sides have, by which rows are joined"
            )
        if twice := [column for n, column in enumerate(self.on) if column in self.on[:n]]:
            raise Refused(f"Join: the key {twice[0]!r} is named twice", hint="name it once")
        if micros(self.within) < 0:
            raise Refused(
                f"Join: within={in_source(self.within)} is negative",
                hint="it counts in both directions; 0 is the same moment",
            )
        if self.within % timedelta(milliseconds=1):
            raise Refused(f"Join: within={in_source(self.within)} has parts of a millisecond", hint="round it")


# A table that an output's function gets in addition to its rows.


MOST_REFRESH = timedelta(days=1)
"""A copy that no driver has used for longer is removed (`onlyonce.lookups.copies`)."""


@declaration
class Lookup:
    """A table that a function joins with its rows: `def f(rows, customers)` gets it as a DataFrame.

    name    the function's parameter that gets the table
    table   Delta(path=…) or Postgres(table=…, connection=…), at one version for each batch: the batch row keeps it, and
            a replay sees the same. The driver copies a PostgreSQL table, and each copy with changed content is a
            version
    keys    the columns that identify a row of the table. A version in which two rows have the same keys is refused: a
            join by them would give a record twice
    refresh how often a driver copies a PostgreSQL table at most; by default each minute. timedelta(0): before each
            batch
    """

    name: str
    table: Delta | Postgres
    keys: Several[str]
    # How fresh a table is decides no result, so it is not part of the identity.
    refresh: timedelta | None = None

    def __post_init__(self) -> None:
        check_name("lookup", self.name)
        if iskeyword(self.name):
            raise Refused(f"lookup {self.name}: a function can't have a parameter of that name", hint="choose another")
        if not getattr(self.table, "lookup_module", ""):
            raise Refused(
                f"lookup {self.name}: the table is {type(self.table).__name__}",
                hint="table=Delta(path='/lake/customers'), or Postgres(table='public.customers', "
                "connection='SHOP_DATABASE_URL')",
            )
        if self.refresh is not None and self.table.keeps_versions:
            raise Refused(
                f"lookup {self.name}: refresh is for a copy of a PostgreSQL table; a Delta table's newest version "
                "is looked for before each batch",
                hint="leave refresh out",
            )
        if self.refresh is not None and not timedelta(0) <= self.refresh <= MOST_REFRESH:
            raise Refused(
                f"lookup {self.name}: refresh is {self.refresh}, and it is from none to a day",
                hint="refresh=timedelta(minutes=1)",
            )
        if self.table.at_default:
            raise Refused(
                f"lookup {self.name}: {self.table.kind}() names no table", hint="table=Delta(path='/lake/customers')"
            )
        if self.table.write != "append":
            raise Refused(
                f"lookup {self.name}: write={self.table.write!r} is for a sink, and a lookup is only read",
                hint="leave write out; the keys belong to the Lookup",
            )
        if not self.keys:
            raise Refused(
                f"lookup {self.name}: no keys",
                hint="keys='id': the columns that identify a row, by which the function joins",
            )


# An output with its own state.


OWN = (WINDOW_START, WINDOW_END)
FROM_START = stored_names.FROM_START
"""The key in the start of an incarnation that begins with no state, and whose rows replace all existing ones."""


@declaration
class Stateful:
    """The user's own processor with state and timers for each key.

    It is Spark's `StatefulProcessor`, for `transformWithStateInPandas`.

    processor      'module:Class', made without arguments. It gets the records of a key as pandas frames, in order of
                   event time, and yields frames
    keys           the declared columns by which records are grouped: each of their values has its own state and timers
    schema         the columns of the rows that it yields, in Spark's DDL
    timers_within  how far after the event time of a key's newest record timers are set, at most: when the input ends,
                   timers up to that time fire
    state_version  a changed version means that the state's content has a new meaning, though its schema is the same
    """

    processor: Named
    keys: Several[str]
    schema: str
    timers_within: timedelta
    state_version: int = 1

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.]+:\w+", self.processor):
            raise not_a_path(f"Stateful: processor={self.processor!r}", "processor", kind="Class")
        if not self.keys:
            raise Refused(
                "Stateful: no keys", hint="keys='device': the declared columns whose values have a state of their own"
            )
        if twice := [column for n, column in enumerate(self.keys) if column in self.keys[:n]]:
            raise Refused(f"Stateful: the key {twice[0]!r} is named twice", hint="name it once")
        if micros(self.timers_within) < 0:
            raise Refused(
                f"Stateful: timers_within={in_source(self.timers_within)} is negative", hint="0 where no timers are set"
            )
        if self.state_version < 1:
            raise Refused(f"Stateful: state_version={self.state_version} is no version", hint="1 is the first one")
        if self.timers_within % timedelta(milliseconds=1):
            raise Refused(
                f"Stateful: timers_within={in_source(self.timers_within)} has parts of a millisecond",
                hint="round it: Spark's timers have none",
            )
        for position, part in ddl.placed(self.schema):
            with at_option(self, "schema", position):
                ddl.check("Stateful: schema", [part])
        self._check_columns()

    def columns(self) -> list[str]:
        """Return the names of the columns that the processor yields, in order."""
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
