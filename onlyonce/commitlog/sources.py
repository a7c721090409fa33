"""Corrected arrivals, failed attempts of receive, Pub/Sub subscriptions, and the last answers of sources.

`Arrivals` corrects when an instance's input arrived, after a driver whose clock was ahead has registered some of it.
`onlyonce doctor --fix --yes` calls this.

A source's manifest stores when each batch arrived, by the clock of the driver that found it. Arrival times decide three
things:

- how long a record's id is remembered. Ids are stored by the ten minutes in which their batch arrived (a *bucket*). A
  bucket that is older than the pipeline's `dedup_horizon` is removed, and a later delivery of its records can't be
  recognised.
- whether a source is silent or idle, since nothing has arrived for some time.
- which event times are too far ahead (`max_ahead`).

A later batch never arrives before an earlier one. So one batch from a year ahead would date all later ones a year
ahead.

A correction does not rewrite anything that is stored: manifests, committed batches and `events` keep the wrong time.
It notes the last batch of each manifest. Each batch up to that one counts as arrived at the time of the correction, if
its manifest says a later time. Input that is registered afterwards arrives by the right clock. Ids in a bucket of the
wrong time stay until the clock has passed it: longer than the horizon, never shorter. An event time that was accepted
stays the maximum, because a watermark never moves back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from onlyonce.commitlog.dropping import Drops
from onlyonce.commitlog.incarnations import Driver, Incarnations
from onlyonce.core.batch import EPOCH, Corrections, to_micros
from onlyonce.core.bisect import Place
from onlyonce.core.errors import Refused, Retryable
from onlyonce.core.gc import BUCKET
from onlyonce.database.connect import Transactions, ask, do, do_many, one_transaction
from onlyonce.failpoints import passing

MOST = timedelta(minutes=15)
"""How far a corrected arrival may be ahead of the clock: into the next bucket."""


class Arrivals(Transactions):
    """Corrected arrival times of input."""

    @one_transaction
    def corrected(self, instance: str) -> Corrections:
        """Return the corrections of an instance."""
        rows = ask(self.connection, "arrivals", "corrected", instance=instance)
        return Corrections(rows[0].arrival if rows else None, {row.manifest: row.batch_no for row in rows})

    @one_transaction
    def correct(self, instance: str, registered: Callable[[], Mapping[str, int]]) -> datetime:
        """Let all that is registered count as arrived now, at the latest; return that time.

        `registered` reads the last batch of each manifest.

        Raise Retryable while a driver is running. Raise Refused if a batch has begun and not ended, or if ids were
        removed that the correction would count as remembered.
        """
        if at_work := Drops(self.connection).look(instance, None).at_work:
            raise Retryable(
                f"a driver of {at_work[0]} is running",
                data="nothing was changed",
                hint=f"onlyonce stop {instance} waits for its end; then run the same command again",
            )
        # Locks the row that each batch reads FOR SHARE when it begins. So a driver that starts now can begin no batch
        # before this transaction has ended.
        found = ask(self.connection, "arrivals", "now", instance=instance)[0]
        if begun := ask(self.connection, "arrivals", "begun", instance=instance):
            batch = f"{begun[0].incarnation}/{begun[0].batch_id}"
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
        for manifest, batch_no in registered().items():
            do(
                self.connection,
                "arrivals",
                "correct",
                instance=instance,
                manifest=manifest,
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
        do(self.connection, "arrivals", "correct_markers", instance=instance, micros=to_micros(arrival))
        return arrival


def _free(found: Any) -> tuple[datetime, int]:
    """Return the first time from now on whose bucket has no removed ids, and the floor that fits it.

    The floor may be lowered: no ids were ever stored between it and the bucket after the last one below it that a batch
    has used (`free_from`).
    """
    if found.gc_floor <= found.bucket:
        return found.now, found.gc_floor
    if found.free_from <= found.bucket:
        return found.now, found.bucket
    return EPOCH + found.free_from * BUCKET, found.free_from


# Counts how often receive has failed at a batch for the same reason, and keeps the records that it therefore refuses.
# docs/specification/receive.md.


@dataclass(frozen=True)
class Failures:
    """How often a batch has failed in a row for one cause, and the reasons of the records that it refuses, by
    position.
    """

    times: int = 0
    refused: Mapping[Place, str] = field(default_factory=dict)


class FailedAttempts(Transactions):
    """Failed attempts at batches of receive, and the records that these refuse."""

    @one_transaction
    def of_batch(self, incarnation: str, batch_id: int) -> Failures:
        """Return the failures of earlier attempts at a batch."""
        rows = ask(self.connection, "failures", "of_batch", incarnation=incarnation, batch_id=batch_id)
        return _read(rows[0]) if rows else Failures()

    @one_transaction
    def add(self, driver: Driver, batch_id: int, cause: str) -> Failures:
        """Note that an attempt has failed. Raise Superseded."""
        Incarnations(self.connection).check_epoch(driver.incarnation, driver.epoch)
        return _read(
            ask(self.connection, "failures", "add", incarnation=driver.incarnation, batch_id=batch_id, cause=cause)[0]
        )

    @one_transaction
    def refuse(self, driver: Driver, instance: str, batch_id: int, refused: Mapping[Place, str]) -> None:
        """Store which records a begun batch refuses. Withdraw its units, so that all of them are written again.

        Raise Superseded.
        """
        self.withdraw(driver, instance, batch_id)
        told = json.dumps([[*place, reason] for place, reason in refused.items()])
        do(self.connection, "failures", "refuse", refused=told, incarnation=driver.incarnation, batch_id=batch_id)
        passing("poison-before-commit")

    @one_transaction
    def withdraw(self, driver: Driver, instance: str, batch_id: int) -> None:
        """Withdraw the units of a begun batch and the ids that they added, so that a replay writes all of them again.

        Their rows must not be in `events`. Raise Superseded.
        """
        Incarnations(self.connection).check_epoch(driver.incarnation, driver.epoch)
        do(
            self.connection,
            "new_incarnations",
            "withdraw_chunks",
            instance=instance,
            incarnation=driver.incarnation,
            batch_id=batch_id,
        )
        do(self.connection, "new_incarnations", "withdraw_units", incarnation=driver.incarnation, batch_id=batch_id)


def _read(row: Any) -> Failures:
    return Failures(row.times, {Place(file, position): reason for file, position, reason in row.refused})


# Which pipeline has which Pub/Sub subscription, and which pulled messages may be delivered again.
# docs/specification/pull.md.
#
# A message is noted before its file is written. The note is removed once its acknowledgement is known. As long as the
# note exists, the gc of ids does not pass the time of the pull run. So the id catalog still has the message's id when
# it is delivered again (`held` in `sql/statements/gc.sql`).


class Subscriptions(Transactions):
    """Subscriptions, and their messages that may be delivered again."""

    @one_transaction
    def register(self, subscription: str, pipeline: str) -> None:
        """Reserve a subscription for the pipeline. Raise Refused if another pipeline has it."""
        Incarnations(self.connection).add_instance(pipeline, pipeline)
        do(self.connection, "pubsub", "register", subscription=subscription, pipeline=pipeline)
        owner = ask(self.connection, "pubsub", "owner", subscription=subscription)[0].pipeline
        if owner != pipeline:
            raise Refused(
                f"subscription {subscription} belongs to pipeline {owner}, so {pipeline} can't pull from it",
                data="nothing was pulled; two pipelines on one subscription would each get a part of its messages",
                hint=f"make a subscription for {pipeline} alone on the same topic; it gets every message from then on",
            )
        do(self.connection, "pubsub", "forget_lapsed", subscription=subscription)

    @one_transaction
    def of_pipeline(self, pipeline: str) -> list[str]:
        """Return the subscriptions from which messages were pulled for a pipeline."""
        return [row.subscription for row in ask(self.connection, "pubsub", "of_pipeline", pipeline=pipeline)]

    @one_transaction
    def newest_bucket(self, pipeline: str) -> int:
        """Return the bucket of the newest receive batch, or the floor. Messages pulled from now on have no lower
        bucket.
        """
        floor = ask(self.connection, "catalog", "floor", instance=pipeline)[0].gc_floor
        return max(int(floor), int(ask(self.connection, "pubsub", "newest_bucket", pipeline=pipeline)[0].bucket))

    @one_transaction
    def note(
        self,
        path: str,
        subscription: str,
        pipeline: str,
        bucket: int,
        message_ids: list[str],
        retention: timedelta,
    ) -> None:
        """Note the messages of a file before it is written: the subscription may deliver them again within its
        retention.

        `bucket` was the newest before they were pulled. Another pull run may have noted the same messages, but not in a
        lower bucket. The floor is read FOR SHARE, as a batch does when it begins, so no gc of ids runs in between.

        Raise Retryable if the floor has passed the bucket. Then this pull run has slept, and others may have pulled its
        messages, whose ids may be removed.
        """
        if ask(self.connection, "catalog", "floor", instance=pipeline)[0].gc_floor > bucket:
            raise Retryable(
                f"this pull run of {pipeline} slept for longer than its dedup horizon",
                data="it did not pull its last messages; they are delivered again, or another pull run has them",
                hint="run the same command again",
            )
        do(
            self.connection,
            "pubsub",
            "note",
            path=path,
            subscription=subscription,
            pipeline=pipeline,
            bucket=bucket,
            message_ids=message_ids,
            retention=retention.total_seconds(),
        )

    @one_transaction
    def settle(self, subscription: str, message_ids: list[str]) -> None:
        """Delete the notes of acknowledged messages, whichever file they were written to first."""
        named = {"subscription": subscription, "message_ids": message_ids}
        # Locked first, in one order. Each statement sees what the previous one left.
        ask(self.connection, "pubsub", "lock", **named)
        do(self.connection, "pubsub", "settle_whole", **named)
        do(self.connection, "pubsub", "settle_some", **named)

    @one_transaction
    def unacknowledged(self, subscription: str) -> int:
        """Return how many pulled messages are not known to be acknowledged."""
        return int(ask(self.connection, "pubsub", "open", subscription=subscription)[0].messages)


# What sources answered when they were asked for unread input, for alerts, metrics and the page.


class SourceAnswers(Transactions):
    """The last answer of each source."""

    @one_transaction
    def store(self, answers: Sequence[Mapping[str, Any]], every: timedelta) -> None:
        """Store answers, given as rows of `source_answers`, and remove those that no request renews any more."""
        rows = [{**row, "detail": json.dumps(row["detail"]), "asked_every": every} for row in answers]
        do_many(self.connection, "source_answers", "store", rows)
        do(self.connection, "source_answers", "forget_old")
