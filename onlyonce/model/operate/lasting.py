"""When what an erasure can't clean is gone: messages of a Kafka topic, and PostgreSQL's write-ahead log, by their
settings; and what object stores keep.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

POLICY, RETENTION, SEGMENT = "cleanup.policy", "retention.ms", "segment.ms"
NAMES = (POLICY, RETENTION, SEGMENT)
"""The settings of a topic that decide."""

KEPT = {
    "gs": "soft delete keeps them for as long as the bucket says (7 days if it says nothing); lifecycle rules "
    "remove old versions and uploads",
    "abfss": "soft delete and versions keep them for as long as the account says; an upload that was not ended goes "
    "after a week",
}
"""What a store keeps of objects that were deleted or replaced, by the kind of its URL."""
KEPT_BY_S3 = (
    "if the bucket keeps versions, a lifecycle rule removes the old ones (NoncurrentVersionExpiration); one "
    "with AbortIncompleteMultipartUpload removes such uploads"
)


def of_bucket(url: str) -> str:
    """Return how long a store keeps what was deleted from a bucket."""
    return KEPT.get(url.partition(":")[0], KEPT_BY_S3)


def of_topic(configuration: Mapping[str, str] | None, now: datetime | None = None) -> str:
    """Return when a topic has no message of now any more. None: the broker did not say."""
    if configuration is None:
        return "once the topic's retention has passed (the broker does not tell it)"
    policy = {one.strip() for one in configuration[POLICY].split(",")}
    retention, segment = int(configuration[RETENTION]), int(configuration[SEGMENT])
    if "delete" not in policy:
        return (
            f"never by themselves ({POLICY}={configuration[POLICY]}): send a newer message of the same key, or "
            "delete them (kafka-delete-records)"
        )
    if retention < 0:
        return f"never by themselves ({RETENTION}={retention}): delete them (kafka-delete-records)"
    # The broker deletes whole segments, by their newest message.
    try:
        at = (now or datetime.now(UTC)) + timedelta(milliseconds=retention + segment)
    except OverflowError:
        return f"never by themselves ({RETENTION}={retention}): delete them (kafka-delete-records)"
    return f"by {at:%Y-%m-%dT%H:%MZ} ({RETENTION}={retention}, {SEGMENT}={segment})"


def of_write_ahead_log(
    checkpoint_timeout: str, max_wal_size: str, *, recycled: bool, archived: bool, slots: Sequence[str]
) -> str:
    """Return how long old bytes stay in the write-ahead log.

    A checkpoint that finds nothing written does nothing, so there is no time by which they are gone.
    """
    said = (
        f"each checkpoint ({checkpoint_timeout} apart, while the server is written to) gives up the segments from "
        "before the last one"
    )
    if recycled:
        said += (
            f"; a segment that is recycled has its old bytes until it is written over, within {max_wal_size} of writes"
        )
    if archived:
        said += "; the archive has copies as long as its own retention says"
    if slots:
        said += f"; the replication slots {', '.join(slots)} hold what their readers have not read"
    return said
