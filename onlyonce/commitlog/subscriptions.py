"""Which pipeline has which Pub/Sub subscription, and which landed messages may be delivered again.
docs/specification/pull.md.

A message is noted before its file is landed. The note is removed once its acknowledgement is known. While it is there
the collection does not pass the time of the landing, so the catalog still has the message's id when it is delivered
again.

Who calls it: `onlyonce.sources.land`; the collection reads what is noted (`sql/statements/collect.sql`, held).
"""

from __future__ import annotations

from datetime import timedelta

from onlyonce.commitlog.lineages import Lineages
from onlyonce.database.connect import ask, do
from onlyonce.database.transactions import Transactions, one_transaction
from onlyonce.model.errors import Refused, Retryable


class Subscriptions(Transactions):
    """Subscriptions, and their messages that may be delivered again."""

    @one_transaction
    def register(self, subscription: str, pipeline: str) -> None:
        """Make a subscription the pipeline's own. Raises Refused when another pipeline has it."""
        Lineages(self.connection).add_instance(pipeline, pipeline)
        do(self.connection, "pubsub", "register", subscription=subscription, pipeline=pipeline)
        owner = ask(self.connection, "pubsub", "owner", subscription=subscription)[0].pipeline
        if owner != pipeline:
            raise Refused(
                f"subscription {subscription} belongs to pipeline {owner}, so {pipeline} can't land from it",
                data="nothing was pulled; two pipelines on one subscription would each get a part of its messages",
                hint=f"make a subscription for {pipeline} alone on the same topic; it gets every message from then on",
            )
        do(self.connection, "pubsub", "forget_lapsed", subscription=subscription)

    @one_transaction
    def of_pipeline(self, pipeline: str) -> list[str]:
        """Return the subscriptions from which messages were landed for a pipeline."""
        return [row.subscription for row in ask(self.connection, "pubsub", "of_pipeline", pipeline=pipeline)]

    @one_transaction
    def newest_bucket(self, pipeline: str) -> int:
        """The bucket of the newest receive batch, or the floor. What is pulled from now on has none below it."""
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
        """Before a file is landed: its messages, which the subscription may deliver again within its retention.

        `bucket` was the newest before they were pulled, so nobody has landed them in a lower one. The floor is read FOR
        SHARE, as by a batch that begins: no collection comes between. Raises Retryable when the floor has passed the
        bucket: this landing has slept, others may have landed its messages, and what they were known by may be
        collected.
        """
        if ask(self.connection, "catalog", "floor", instance=pipeline)[0].gc_floor > bucket:
            raise Retryable(
                f"this landing of {pipeline} slept for longer than its dedup horizon",
                data="it did not land its last messages; they are delivered again, or another landing has them",
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
        """These messages are acknowledged, whichever file they were landed in first."""
        named = {"subscription": subscription, "message_ids": message_ids}
        # Locked first, in one order. Each statement sees what the one before it left.
        ask(self.connection, "pubsub", "lock", **named)
        do(self.connection, "pubsub", "settle_whole", **named)
        do(self.connection, "pubsub", "settle_some", **named)

    @one_transaction
    def unacknowledged(self, subscription: str) -> int:
        """How many landed messages are not known to be acknowledged."""
        return int(ask(self.connection, "pubsub", "open", subscription=subscription)[0].messages)
