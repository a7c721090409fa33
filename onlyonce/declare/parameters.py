"""Sees that a function takes what its output gives it: the rows, and each lookup by its name.

Who calls it: `onlyonce.check.look`, and `onlyonce.testing`. Errors: Refused, at the line of the function.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any

from onlyonce.declare.outputs.output import Output
from onlyonce.model import origin
from onlyonce.model.errors import Refused

NOTHING = "nothing was read or written"


def check(output: Output, function: Callable[..., Any]) -> None:
    """Raise Refused for a lookup that is no parameter, and for a parameter that nothing is given to."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[1:]
    except (TypeError, ValueError):  # built in C: it has no signature that could be read
        return
    given = [lookup.name for lookup in output.lookups]
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    where = f"{at}: " if (at := origin.of_function(function)) else ""
    for name in given:
        if name not in named and not takes_all:
            close = difflib.get_close_matches(name, named, n=1)
            guess = f"did you mean {close[0]!r}? " if close else ""
            raise Refused(
                f"{where}output {output.name}: {output.made_by} has no parameter {name!r} for the lookup of that name",
                data=NOTHING,
                hint=f"{guess}def {function.__name__}(rows, {', '.join(given)})",
            )
    for parameter in parameters:
        needed = parameter.default is parameter.empty and parameter.name in named
        if needed and parameter.name not in given:
            has = f"the output has the lookups: {', '.join(given)}" if given else "the output has no lookups"
            raise Refused(
                f"{where}output {output.name}: {output.made_by} takes {parameter.name!r}, which nothing is given to",
                data=NOTHING,
                hint=f"{has}. Declare it: lookups=[Lookup(name={parameter.name!r}, table=Delta(path=…), keys=…)]",
            )


def check_reject(output: Output, function: Callable[..., Any]) -> None:
    """Raise Refused for a function for rejections that takes more than the rows."""
    try:
        more = list(inspect.signature(function).parameters.values())[1:]
    except (TypeError, ValueError):  # built in C: it has no signature that could be read
        return
    where = f"{at}: " if (at := origin.of_function(function)) else ""
    for parameter in more:
        if parameter.default is parameter.empty and parameter.kind in (
            parameter.POSITIONAL_OR_KEYWORD,
            parameter.KEYWORD_ONLY,
        ):
            raise Refused(
                f"{where}output {output.name}: {output.reject} takes {parameter.name!r}, which nothing is given "
                "to: it gets the rows alone",
                data=NOTHING,
                hint="what a lookup decides is a result of its own: return a dict of DataFrames from the transform",
            )
