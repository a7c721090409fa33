"""A table that an output's function gets beside its rows, as a user declares it. Pure data, checked when it is made."""

from __future__ import annotations

from keyword import iskeyword

from onlyonce.declare.declaration import check_name, declaration
from onlyonce.declare.several import NONE, Several
from onlyonce.declare.sinks import Delta, Postgres
from onlyonce.model.errors import Refused


@declaration
class Lookup:
    """A table that a function joins its rows with: `def f(rows, customers)` gets it as a DataFrame.

    name    the function's parameter that the table is given to
    table   Delta(path=…), at one version for each batch: the batch row keeps it, and a replay sees the same
    keys    the columns that identify a row of the table. A version in which two rows have the same keys is refused: a join
            by them would give a record twice
    """

    name: str
    table: Delta | Postgres
    keys: Several[str] = NONE

    def __post_init__(self) -> None:
        check_name("lookup", self.name)
        if iskeyword(self.name):
            raise Refused(f"lookup {self.name}: a function can't have a parameter of that name", hint="choose another")
        if not isinstance(self.table, Delta | Postgres):
            raise Refused(
                f"lookup {self.name}: the table is {type(self.table).__name__}",
                hint="table=Delta(path='/lake/customers')",
            )
        if isinstance(self.table, Postgres):
            raise Refused(
                f"lookup {self.name}: a PostgreSQL table can't be a lookup yet: it keeps no earlier versions, so a replay would see others",
                hint="copy it into a Delta table, by a task that runs as often as it must be fresh: table=Delta(path='/lake/customers')",
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
