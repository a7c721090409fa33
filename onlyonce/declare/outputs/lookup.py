"""A table that an output's function gets beside its rows, as a user declares it. Pure data, checked when it is made."""

from __future__ import annotations

from datetime import timedelta
from keyword import iskeyword

from onlyonce.declare.declaration import check_name, declaration
from onlyonce.declare.outputs.sinks import Delta, Postgres
from onlyonce.declare.several import NONE, Several
from onlyonce.model.errors import Refused

MOST_REFRESH = timedelta(days=1)
"""What no driver has found for longer is collected (`onlyonce.lookups.collecting`)."""


@declaration
class Lookup:
    """A table that a function joins its rows with: `def f(rows, customers)` gets it as a DataFrame.

    name    the function's parameter that the table is given to
    table   Delta(path=…) or Postgres(table=…, connection=…), at one version for each batch: the batch row keeps it, and
            a replay sees the same. Of a PostgreSQL table the driver takes a copy, and each copy with other content is a
            version
    keys    the columns that identify a row of the table. A version in which two rows have the same keys is refused: a
            join by them would give a record twice
    refresh how often a driver takes a copy of a PostgreSQL table at most; by default each minute.
            timedelta(0): before each batch
    """

    name: str
    table: Delta | Postgres
    keys: Several[str] = NONE
    # How fresh a table is decides no result, so it is no part of the identity.
    refresh: timedelta | None = None

    def __post_init__(self) -> None:
        check_name("lookup", self.name)
        if iskeyword(self.name):
            raise Refused(f"lookup {self.name}: a function can't have a parameter of that name", hint="choose another")
        if not isinstance(self.table, Delta | Postgres):
            raise Refused(
                f"lookup {self.name}: the table is {type(self.table).__name__}",
                hint="table=Delta(path='/lake/customers'), or Postgres(table='public.customers', "
                "connection='SHOP_DATABASE_URL')",
            )
        if isinstance(self.table, Postgres) and "://" in (self.table.connection or ""):
            raise Refused(
                f"lookup {self.name}: connection is a URL",
                hint="name the environment variable that holds it: it has a password",
            )
        if self.refresh is not None and not isinstance(self.table, Postgres):
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
        if isinstance(self.table, Delta) and self.table.path is None:
            raise Refused(f"lookup {self.name}: Delta() names no table", hint="table=Delta(path='/lake/customers')")
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
