"""Correct when an instance's input arrived, after a driver whose clock was ahead has registered some of it.

`onlyonce doctor --fix --yes` calls this.

A source's registry stores when each batch arrived, by the clock of the driver that found it. Arrival times decide three
things:

- how long a record's id is remembered. Ids are stored by the ten minutes in which their batch arrived (a *bucket*). A
  bucket that is older than
  the pipeline's `dedup_horizon` is removed, and a later delivery of its records can't be recognised.
- whether a source is silent or idle, since nothing has arrived for some time.
- which event times are too far ahead (`max_ahead`).

A later batch never arrives before an earlier one. So one batch from a year ahead would date all that follows a year
ahead.

A correction does not rewrite anything that is stored: registries, committed batches and `events` keep the wrong time.
It notes, for each registry, the last batch that counts as arrived at the time of the correction, if its registry says a
later time. Input that is registered afterwards arrives by the right clock. Ids in a bucket of the wrong time stay until
the clock has passed it: longer than the horizon, never shorter. An event time that was accepted stays the maximum,
because a watermark never moves back.

Errors: Retryable while a driver is at work; Refused if a batch has begun and not ended, or if ids were removed that the
correction would count as remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from onlyonce.commitlog.operate.dropping import Drops
from onlyonce.database.connect import ask, do
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.model.batch import EPOCH, to_micros
from onlyonce.model.errors import Refused, Retryable
from onlyonce.model.operate.collecting import BUCKET
from onlyonce.model.sources.arrivals import Corrections

MOST = timedelta(minutes=15)
"""A corrected arrival may be so far ahead of the clock: into the next bucket."""


class Arrivals(Transactions):
    """When input arrived, where that was corrected."""

    @one_transaction
    def corrected(self, instance: str) -> Corrections:
        """Return what was corrected of an instance."""
        rows = ask(self.connection, "arrivals", "corrected", instance=instance)
        return Corrections(rows[0].arrival if rows else None, {row.registry: row.batch_no for row in rows})

    @one_transaction
    def correct(self, instance: str, registered: Callable[[], Mapping[str, int]]) -> datetime:
        """Let all that is registered count as arrived now, at the latest; return that time.

        `registered` reads the last batch of each registry.
        """
        if at_work := Drops(self.connection).look(instance, None).at_work:
            raise Retryable(
                f"a driver of {at_work[0]} is at work",
                data="nothing was changed",
                hint=f"onlyonce stop {instance} waits for its end; then run the same command again",
            )
        found = ask(self.connection, "arrivals", "now", instance=instance)[0]
        if begun := ask(self.connection, "arrivals", "begun", instance=instance):
            batch = f"{begun[0].lineage}/{begun[0].batch_id}"
            raise Refused(
                f"batch {batch} has begun with the arrival that is ahead",
                data="nothing was changed",
                hint=f"onlyonce run {instance} ends it; then run the same command again",
            )
        arrival, floor = _free(found)
        if arrival > found.now + MOST:
            raise Refused(
                f"ids of {instance} were removed up to {arrival:%Y-%m-%d %H:%M} UTC, by the arrival that is ahead",
                data="nothing was changed; an arrival before that time would count these ids as live again",
                hint=f"begin again: put the archived input back, onlyonce drop {instance} --tables --yes, then run it",
            )
        do(self.connection, "arrivals", "forget", instance=instance)
        for registry, batch_no in registered().items():
            do(
                self.connection,
                "arrivals",
                "correct",
                instance=instance,
                registry=registry,
                batch_no=batch_no,
                arrival=arrival,
            )
        do(self.connection, "arrivals", "lower_floor", instance=instance, floor=floor)
        do(
            self.connection,
            "arrivals",
            "correct_batches",
            instance=instance,
            micros=to_micros(arrival),
            arrival=arrival,
        )
        do(self.connection, "arrivals", "correct_closes", instance=instance, micros=to_micros(arrival))
        return arrival


def _free(found: Any) -> tuple[datetime, int]:
    """Return the first time from now on whose bucket has no removed ids, and that bucket where the floor is higher."""
    if found.gc_floor <= found.bucket:
        return found.now, found.gc_floor
    if found.free_from <= found.bucket:
        return found.now, found.bucket
    return EPOCH + found.free_from * BUCKET, found.free_from
