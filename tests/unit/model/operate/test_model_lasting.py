"""When what an erasure can't clean is gone: by the settings of a topic, and of PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from onlyonce.core import erasure

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = 86_400_000


@pytest.mark.parametrize("policy, retention, said", [
    ("delete", DAY, "by 2026-01-09T00:00Z"), ("compact,delete", DAY, "by 2026-01-09T00:00Z"), ("delete", -1, "never by themselves (retention.ms=-1)"),
    ("compact", DAY, "never by themselves (cleanup.policy=compact)"), ("delete", 2**63 - 1, "never by themselves"),
])  # fmt: skip
def test_messages_are_gone_after_retention_and_a_segment(policy: str, retention: int, said: str) -> None:
    """The broker deletes whole segments. Without a limit, or with compaction alone, no time makes them go."""
    settings = {"cleanup.policy": policy, "retention.ms": str(retention), "segment.ms": str(7 * DAY)}
    assert erasure.lasting_in_topic(settings, NOW).startswith(said)


def test_silent_broker_is_named() -> None:
    """The receipt does not promise what the broker did not say."""
    assert "does not tell" in erasure.lasting_in_topic(None)


def test_old_bytes_of_the_write_ahead_log_stay_by_its_settings() -> None:
    """Each reason for which they stay is named."""
    plain = erasure.lasting_in_write_ahead_log("5min", "1GB", recycled=False, archived=False, slots=[])
    every = erasure.lasting_in_write_ahead_log("5min", "1GB", recycled=True, archived=True, slots=["standby"])

    assert [word in plain for word in ("5min", "recycled", "archive", "slot")] == [True, False, False, False]
    assert all(word in every for word in ("5min", "within 1GB of writes", "archive has copies", "slots standby"))
