"""Which windows a run of a backfill DAG recomputes, by its form or its data interval. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from onlyonce.model.errors import Refused

_NOTHING = "nothing was read or written"


@dataclass(frozen=True)
class Asked:
    """The windows of a pipeline that start in [start, stop), two times in ISO 8601, of one output or of all; `lookups`:
    'then' or 'now'.

    late_only   only windows with late records that are not in their result; then both times may be missing
    """

    pipeline: str
    start: str | None
    stop: str | None
    output: str | None = None
    lookups: str | None = None
    late_only: bool = False

    def arguments(self, run_id: str, dag_id: str) -> list[str]:
        """The driver's command line. No secret is among it."""
        asked = [self.pipeline, f"--run-id={run_id}", f"--dag-id={dag_id}"]
        asked += [f"--from={self.start}", f"--to={self.stop}"] if self.start else []
        asked += ["--late-only"] if self.late_only else []
        asked += [f"--output={self.output}"] if self.output else []
        return asked + ([f"--lookups={self.lookups}"] if self.lookups else [])


def asked_of(pipeline: str, params: Mapping[str, Any], interval: tuple[datetime, datetime] | None) -> Asked:
    """What a run asks for: by its Params, or by its data interval. Never by the run id, which holds the interval's end.

    With the Param late_only it may name no windows: then all with late records are meant. An empty interval is none.
    Raises Refused when neither names the windows, or both do, or half of it is missing.
    """
    start, stop = params.get("window_start"), params.get("window_end")
    late_only = bool(params.get("late_only"))
    if interval and interval[0] >= interval[1]:
        interval = None
    if interval and (start or stop):
        raise Refused(
            f"the run has the data interval {_text(interval)}, and its Params name windows too",
            data=_NOTHING,
            hint="leave window_start and window_end empty in a backfill of intervals; to name them, trigger a "
            "single run",
        )
    if interval:
        start, stop = (time.isoformat() for time in interval)
    if not start and not stop and not late_only:
        raise Refused(
            "this run has neither a data interval nor window_start and window_end",
            data=_NOTHING,
            hint="trigger it with both Params, or with late_only for all windows with late records; or choose "
            "Backfill in the trigger form for whole intervals",
        )
    if bool(start) != bool(stop):
        given, missing = ("window_start", "window_end") if start else ("window_end", "window_start")
        raise Refused(f"{given} is given, {missing} is not", data=_NOTHING, hint="trigger it with both Params")
    return Asked(pipeline, start or None, stop or None, params.get("output"), params.get("lookups"), late_only)


def _text(interval: tuple[datetime, datetime]) -> str:
    return " to ".join(time.isoformat() for time in interval)
