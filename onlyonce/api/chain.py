"""Outputs with own windows that are made from another output's closed windows: their checks and their windows. Pure."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from onlyonce.api.declaration import at_option, unknown
from onlyonce.api.outputs import Output
from onlyonce.core.errors import Refused
from onlyonce.core.windows import Chained, Fixed, Session, Window


def with_windows(pipeline: str, outputs: Sequence[Output]) -> tuple[Output, ...]:
    """Return the outputs of a pipeline. The windows of a chained output then know the upstream windows.

    Raise Refused for a circle of outputs, and for windows that can't be chained.
    """
    known = {output.name: output for output in outputs}
    done: dict[str, Output] = {}

    def made(output: Output, through: tuple[str, ...]) -> Output:
        if output.name in done or output.from_output is None:
            return done.setdefault(output.name, output)
        if output.name in through:
            circle = " from ".join([*through[through.index(output.name) :], output.name])
            raise Refused(
                f"pipeline {pipeline}: outputs are made from each other in a circle: {circle}",
                hint="one of them must read the records: leave its from_output out",
            )
        if output.from_output not in known:
            with at_option(output, "from_output"):
                raise unknown("output", output.from_output, [one for one in known if one != output.name])
        before = made(known[output.from_output], (*through, output.name))
        return done.setdefault(output.name, _of(output, before))

    return tuple(made(output, ()) for output in outputs)


def in_order(roots: Sequence[Output]) -> list[Output]:
    """Return the outputs with their own queries in declared order, but each after its upstream outputs."""
    return sorted(roots, key=lambda root: _depth(root.window))


def check_chain(made: Output, before: Output) -> None:
    """Raise Refused for options that an output with own windows, or its upstream output, can't have."""
    where = f"output {made.name} (from_output={before.name})"
    again = "its function is called again on the records of each window that is made from its windows"
    if made.is_result:
        raise Refused(
            f"{where} has a window of its own, and no transform",
            hint="transform='module:function', over the rows of the closed windows",
        )
    if before.made_beside:
        raise Refused(
            f"{where}: {before.name} is itself made in the batches of {before.made_beside}",
            hint="make it from that one",
        )
    refuse_as_they_come(where, before)
    if before.is_early or made.is_early:
        raise Refused(
            f"{where}: early panes change; windows that are made of others are of closed ones",
            hint="use on_time panes at both",
        )
    if before.stable_input:
        raise Refused(
            f"{where}: {before.name} has stable_input, and {again}",
            hint="take stable_input out of it: its function must give the same rows again",
        )
    for one in (before, made):
        if one.lookups:
            raise Refused(
                f"{where}: {one.name} has lookups, and {again}: the tables may be others then",
                hint="look up where the table is read",
            )
    if made.late_trigger and not before.late_trigger:
        raise Refused(
            f"{where}: late={made.late!r}, and {before.name} leaves late records out, so that none ever comes here",
            hint=f"late='backfill' at {before.name} too; or leave it out here: a backfill of {before.name} makes "
            "both again",
        )


def refuse_as_they_come(where: str, before: Output) -> None:
    """Raise Refused for an upstream output whose rows come at any time, not when a window closes."""
    if before.join:
        raise Refused(
            f"{where}: a join gives its rows as they come, and not by closed windows", hint="read the table of the join"
        )
    if before.stateful:
        raise Refused(
            f"{where}: a processor with state gives its rows as they come, and not by closed windows",
            hint="read its table",
        )


def _of(made: Output, before: Output) -> Output:
    """Return the output with chained windows, if its windows differ from the upstream output's.

    Equal windows need no chain: the output is made in the batches of the upstream output."""
    window = made.window.own if isinstance(made.window, Chained) else made.window
    if window is None or window == _plain(before.window):
        return made if window is made.window else _with(made, window)
    where = f"output {made.name} (from_output={before.name})"
    if before.window is None or isinstance(before.window, Session):
        what = "no windows" if before.window is None else "sessions, which only its function knows"
        raise Refused(
            f"{where} has windows of its own, and {before.name} has {what}",
            hint="make it from fixed or sliding windows, or from the records",
        )
    if not isinstance(window, Fixed):
        raise Refused(
            f"{where}: closed windows can be put into fixed windows, not into {type(window).__name__}",
            hint="window=Fixed(timedelta(hours=1)); or leave from_output out: sliding windows and sessions are of "
            "records",
        )
    leaves_out = before.late == "keep"
    return _with(
        made, Chained(window.size, window.offset, window.timezone, before.window, before.watermark_delay, leaves_out)
    )


def _with(made: Output, window: Window | None) -> Output:
    # Not by the constructor, which would note another declaration site than the user's.
    found = copy.copy(made)
    object.__setattr__(found, "window", window)
    return found


def _plain(window: Window | None) -> Window | None:
    return window.own if isinstance(window, Chained) else window


def _depth(window: Window | None) -> int:
    return 1 + _depth(window.upstream) if isinstance(window, Chained) else 0
