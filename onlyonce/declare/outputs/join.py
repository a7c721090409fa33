"""A join of two streams, as a user declares it. Pure data, checked when it is made."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Literal

from onlyonce.declare.declaration import check_one_of, declaration
from onlyonce.declare.several import Several
from onlyonce.model.errors import Refused
from onlyonce.model.windows import micros

KINDS = ("inner", "left", "right", "full")


@declaration
class Join:
    """Rows of two functions over the records of the pipeline, joined by key where their event times are near each
    other.

    left, right  'module:function', as a transform: takes the records and selects those of its side, with the columns
                 that it wants. It keeps the key and oo_event_time; it does not aggregate
    on           the columns that both sides have and by whose values rows are joined; a null is equal to nothing
    within       the bound: rows join if their event times are at most so far apart, whichever is first
    kind         'inner'. 'left', 'right' and 'full' also give the rows of that side, or of both, which have found no
                 partner when the bound has passed, with nulls
    """

    left: str
    right: str
    on: Several[str]
    within: timedelta
    kind: Literal["inner", "left", "right", "full"] = "inner"

    def __post_init__(self) -> None:
        for side, function in (("left", self.left), ("right", self.right)):
            if not re.fullmatch(r"[\w.]+:\w+", function):
                raise Refused(f"Join: {side}={function!r} is not of the form 'module:function'")
        check_one_of("Join", "kind", self.kind, KINDS)
        if not self.on:
            raise Refused(
                "Join: no key", hint="on='order_id': the columns that both sides have, by which rows are joined"
            )
        if twice := [column for n, column in enumerate(self.on) if column in self.on[:n]]:
            raise Refused(f"Join: the key {twice[0]!r} is named twice", hint="name it once")
        if micros(self.within) < 0:
            raise Refused(
                f"Join: within={self.within} is negative", hint="it counts in both directions; 0 is the same moment"
            )
        if self.within % timedelta(milliseconds=1):
            raise Refused(f"Join: within={self.within} has parts of a millisecond", hint="round it")
