"""Decide which ranges of a topic's offsets are read, given the broker's (`Seen`) and the manifest's (`Known`) facts.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from onlyonce.api.messages import Kafka
from onlyonce.core.batch import FACT_FROM, FACT_REASON
from onlyonce.core.errors import Refused


@dataclass(frozen=True)
class Seen:
    """The broker's answer about a topic: its id, and by partition its first offset and the end of what may be read.

    written     the ends with the messages of open transactions (the high watermarks); asked for if a partition
                `ends_early`
    """

    topic_id: str
    earliest: Mapping[int, int]
    latest: Mapping[int, int]
    written: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Known:
    """The manifest's state of a topic: the topic's first and last id, and by partition where the next batch begins."""

    first_id: str
    topic_id: str
    next: Mapping[int, int]


@dataclass(frozen=True)
class Range:
    """Offsets [first, until) of one partition, or with a `refusal` one lost range.

    `place` names the partition in record ids: 'topic/partition', with '@' and the topic's id for a topic that was
    created again.
    """

    place: str
    topic_id: str
    part: int
    first: int
    until: int
    refusal: str | None = None

    @property
    def offsets(self) -> int:
        """Return how many offsets remain to read."""
        return 0 if self.refusal else self.until - self.first


def ends_early(known: Known, seen: Seen) -> bool:
    """Return whether a partition ends before the end of what was read of it."""
    return known.topic_id == seen.topic_id and any(known.next.get(part, end) > end for part, end in seen.latest.items())


def new_ranges(source: Kafka, known: Known | None, seen: Seen, started: Mapping[int, int]) -> list[Range]:
    """Return the new ranges of a topic. `started` is where the first run begins, by partition; later runs ignore it.

    At the first run each partition has a range, even an empty one: it stores where the source began. Raise Refused for
    lost messages, unless the source skips them: then a range with a refusal stands for each loss.
    """
    if known is None:
        return [
            _range(source, seen, seen.topic_id, part, min(max(started[part], seen.earliest[part]), end), end)
            for part, end in sorted(seen.latest.items())
        ]
    again = known.topic_id != seen.topic_id
    lost = _made_again(source, known, seen) if again else []
    goes_on = {} if again else known.next
    found = []
    for part, end in sorted(seen.latest.items()):
        first, earliest = goes_on.get(part, seen.earliest[part] if again else 0), seen.earliest[part]
        if first > end:
            # `isolation` has become read_committed, and a transaction is open whose messages were read before.
            if first > (written := seen.written.get(part, end)):
                raise _shorter(source, part, first, written)
            continue
        if first < earliest:
            reason = (
                f"offsets {first} to {earliest - 1} of {source.topic}/{part} were deleted by the broker before "
                "they were read"
            )
            lost.append(_range(source, seen, known.first_id, part, first, earliest, reason))
        if part not in goes_on or max(first, earliest) < end:
            found.append(_range(source, seen, known.first_id, part, max(first, earliest), end))
    if lost and source.on_loss == "stop":
        raise _loss(source, [str(one.refusal) for one in lost])
    return lost + found


def cut(ranges: Iterable[Range], size: int) -> list[list[Range]]:
    """Return batches of at most about `size` offsets: each has the same share of every partition, in order."""
    ranges = list(ranges)
    plain = [one for one in ranges if one.refusal is None]
    batches = max(1, -(-sum(one.offsets for one in plain) // size))
    found: list[list[Range]] = [[one for one in ranges if one.refusal is not None or not one.offsets]]
    found += [[] for _ in range(batches - 1)]
    for one in plain:
        edges = [one.first + one.offsets * number // batches for number in range(batches + 1)]
        for batch, first, until in zip(found, edges, edges[1:], strict=False):
            if first < until:
                batch.append(replace(one, first=first, until=until))
    return [batch for batch in found if batch]


def lost_since(ranges: Iterable[Range], seen: Seen | None) -> dict[str, Any]:
    """Return what a registered batch has lost since, by place: the reason, and the first offset that is left.

    None: no such topic.
    """
    found: dict[str, Any] = {}
    for one in ranges:
        if one.offsets == 0:
            continue
        if seen is None or seen.topic_id != one.topic_id:
            reason = (
                f"offsets {one.first} to {one.until - 1} of {one.place} went with the topic, which was deleted "
                "before they were read"
            )
            found[one.place] = {FACT_REASON: reason, FACT_FROM: one.until}
        elif seen.earliest[one.part] > one.first:
            upto = min(seen.earliest[one.part], one.until)
            reason = (
                f"offsets {one.first} to {upto - 1} of {one.place} were deleted by the broker before they were read"
            )
            found[one.place] = {FACT_REASON: reason, FACT_FROM: upto}
    return found


def readable(ranges: Iterable[Range], facts: Mapping[str, Any]) -> list[Range]:
    """Return the ranges of a batch that are read, by the facts of its row."""
    found = [
        replace(one, first=facts[one.place][FACT_FROM]) if one.place in facts else one
        for one in ranges
        if one.refusal is None
    ]
    return [one for one in found if one.offsets > 0]


def refuse_lost(source: Kafka, facts: Mapping[str, Any]) -> None:
    """Raise Refused if messages of a registered batch are lost and the declaration says to stop."""
    lost = [fact[FACT_REASON] for _, fact in sorted(facts.items()) if FACT_FROM in fact]
    if lost and source.on_loss == "stop":
        raise _loss(source, lost)


def _range(
    source: Kafka, seen: Seen, first_id: str, part: int, first: int, until: int, refusal: str | None = None
) -> Range:
    topic = "" if seen.topic_id == first_id else f"@{seen.topic_id}"
    return Range(f"{source.topic}/{part}{topic}", seen.topic_id, part, first, until, refusal)


def _made_again(source: Kafka, known: Known, seen: Seen) -> list[Range]:
    return [
        _range(
            source,
            seen,
            known.first_id,
            part,
            0,
            0,
            f"topic {source.topic} was deleted and made again: what its partition {part} held from offset {first} "
            "on was not read",
        )
        for part, first in sorted(known.next.items())
    ]


def _loss(source: Kafka, reasons: list[str]) -> Refused:
    shown = "; ".join(reasons[:5]) + (f"; and {len(reasons) - 5} more" if len(reasons) > 5 else "")
    return Refused(
        f"messages of topic {source.topic} are lost: {shown}",
        data="nothing was skipped; what was read before is as it was",
        hint="if they can be sent again, send them (to their partitions' end). Then continue behind the loss: "
        "Kafka(on_loss='skip') in the declaration; each lost range becomes one invalid record that says so. Remove "
        "it after one run, if you like",
    )


def _shorter(source: Kafka, part: int, first: int, end: int) -> Refused:
    return Refused(
        f"topic {source.topic}: partition {part} ends at offset {end}, but was read up to {first}",
        data="the broker has forgotten messages that it had given out; new ones would get offsets that were read "
        "already",
        hint="restore the topic; or delete it and make it again (then it has another id, and on_loss='skip' reads it "
        "from its begin), or declare a pipeline of another name",
    )
