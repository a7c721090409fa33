"""What another `keep_log` than before gives up, in words. Pure.

Who calls it: `onlyonce.operate.change.plan`, and the reports that look at batches one by one.
"""

from __future__ import annotations

from datetime import datetime, timedelta


def given_up(before: timedelta | None, after: timedelta | None, limit: datetime | None) -> str | None:
    """What another `keep_log` than that of the last cut means; None where it means nothing.

    `limit`: batches of before that moment go; None: there are none.
    """
    if after is None or (before is not None and after > before):
        return None if before is None else "from now on; what is cut from the log does not come back"
    if after == before:
        return None
    if limit is None:
        return "no batch of an output is so old yet"
    return (
        f"the next `onlyonce maintain` cuts the batches of outputs that were committed before {said(limit)} from "
        "the log: their sums stay, by life and by window, but "
        "onlyonce.batches, onlyonce.conservation and the page have them one by one no more"
    )


def said(time: datetime) -> str:
    """A moment as the views show it."""
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
