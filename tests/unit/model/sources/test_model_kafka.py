"""What is decided about a topic's offsets, and how it is declared. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onlyonce.api import load as declarations
from onlyonce.api.identity import of, receive_parts
from onlyonce.api.messages import Kafka
from onlyonce.api.pipeline import Pipeline
from onlyonce.core.changes import Need, changes
from onlyonce.core.errors import Refused
from onlyonce.sources import all_sources
from onlyonce.sources.kafka_offsets import (
    Known,
    Range,
    Seen,
    cut,
    ends_early,
    lost_since,
    new_ranges,
    readable,
    refuse_lost,
)
from onlyonce.sources.record_id import asked, of_file, of_place
from tests.support.shop import SHOP

TOPIC = Kafka(topic="sales", servers="localhost:9092")
SKIPPING = Kafka(topic="sales", servers="localhost:9092", on_loss="skip")


def offsets(ranges: list[Range]) -> Counter[tuple[str, int]]:
    """Each offset that is to be read."""
    return Counter((one.place, n) for one in ranges if one.refusal is None for n in range(one.first, one.until))


@settings(deadline=None)
@given(
    ends=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 300)), min_size=1, max_size=6), size=st.integers(1, 200)
)
def test_a_cut_takes_each_offset_once_in_order_and_about_the_size(ends: list[tuple[int, int]], size: int) -> None:
    """Whatever the partitions hold: no offset twice or never, none before an earlier one, no batch far beyond the
    size."""
    ranges = [Range(f"sales/{part}", "a", part, first, first + count) for part, (first, count) in enumerate(ends)]

    batches = cut(ranges, size)

    assert sum((offsets(batch) for batch in batches), Counter()) == offsets(ranges)
    assert {one.part for batch in batches for one in batch} == set(range(len(ends))), "each partition stores its begin"
    for part, (first, _) in enumerate(ends):
        edges = [(one.first, one.until) for batch in batches for one in batch if one.part == part]
        assert edges[0][0] == first
        assert all(before[1] == after[0] for before, after in pairwise(edges))
    assert all(sum(one.offsets for one in batch) <= size + len(ends) for batch in batches)


def test_the_first_run_stores_where_it_began_also_without_a_message() -> None:
    """An empty partition, and one that is read from its end, have an empty range; a start before the first offset is
    it."""
    seen = Seen("a", {0: 5, 1: 0, 2: 3}, {0: 9, 1: 0, 2: 7})

    found = new_ranges(TOPIC, None, seen, {0: 0, 1: 0, 2: 7})

    assert [(one.part, one.first, one.until) for one in found] == [(0, 5, 9), (1, 0, 0), (2, 7, 7)]
    assert [(one.part, one.first, one.until) for one in cut(found, 2)[0]] == [(1, 0, 0), (2, 7, 7), (0, 5, 7)]


def test_later_runs_go_on_and_take_an_added_partition_from_its_begin() -> None:
    """Nothing new is nothing; a partition that was not there is new whatever the declared start is."""
    known = Known("a", "a", {0: 9})

    assert new_ranges(TOPIC, known, Seen("a", {0: 5}, {0: 9}), {}) == []
    found = new_ranges(TOPIC, known, Seen("a", {0: 5, 1: 0}, {0: 10, 1: 2}), {})
    assert [(one.place, one.first, one.until) for one in found] == [("sales/0", 9, 10), ("sales/1", 0, 2)]


LOST = {
    "retention": (Known("a", "a", {0: 3}), Seen("a", {0: 5}, {0: 9}), "offsets 3 to 4 of sales/0 were deleted"),
    "all of it": (Known("a", "a", {0: 3}), Seen("a", {0: 9}, {0: 9}), "offsets 3 to 8 of sales/0 were deleted"),
    "added and lost": (Known("a", "a", {}), Seen("a", {0: 2}, {0: 9}), "offsets 0 to 1 of sales/0 were deleted"),
    "made again": (Known("a", "a", {0: 3}), Seen("b", {0: 0}, {0: 9}), "deleted and made again: what its partition 0"),
}


@pytest.mark.parametrize("case", LOST)
def test_what_the_broker_has_lost_stops_a_run_or_becomes_one_invalid_record(case: str) -> None:
    """Never skipped in silence, and what is still there is taken."""
    known, seen, word = LOST[case]

    with pytest.raises(Refused, match=word) as refused:
        new_ranges(TOPIC, known, seen, {})
    assert "on_loss='skip'" in refused.value.hint
    found = new_ranges(SKIPPING, known, seen, {})

    [reason] = [str(one.refusal) for one in found if one.refusal]
    assert word in reason
    topic = "" if seen.topic_id == "a" else "@b"
    assert offsets(found) == Counter((f"sales/0{topic}", n) for n in range(seen.earliest[0], seen.latest[0]))


def test_a_topic_that_has_become_shorter_is_refused_whatever_is_declared() -> None:
    """New messages would come under offsets that are read."""
    with pytest.raises(Refused, match="ends at offset 2, but was read up to 3"):
        new_ranges(SKIPPING, Known("a", "a", {0: 3}), Seen("a", {0: 0}, {0: 2}), {})


def test_end_before_what_was_read_waits_for_an_open_transaction() -> None:
    """After a change to `read_committed`: the broker has the messages, so nothing is lost. Other partitions are read."""
    known, seen = Known("a", "a", {0: 120, 1: 5}), Seen("a", {0: 0, 1: 0}, {0: 100, 1: 7})

    assert ends_early(known, seen)
    assert not ends_early(known, replace(seen, latest={0: 120, 1: 7}))
    found = new_ranges(TOPIC, known, replace(seen, written={0: 120, 1: 7}), {})
    assert [(one.part, one.first, one.until) for one in found] == [(1, 5, 7)]
    with pytest.raises(Refused, match="ends at offset 119, but was read up to 120"):
        new_ranges(TOPIC, known, replace(seen, written={0: 119, 1: 7}), {})


@pytest.mark.parametrize(
    "seen, lost, left",
    [
        (Seen("a", {0: 0}, {0: 9}), 0, range(3, 7)),
        (Seen("a", {0: 5}, {0: 9}), 1, range(5, 7)),
        (Seen("a", {0: 8}, {0: 9}), 1, range(0)),
        (Seen("b", {0: 0}, {0: 9}), 1, range(0)),
        (None, 1, range(0)),
    ],
)
def test_what_is_lost_of_a_registered_batch_is_a_fact_of_its_row(seen: Seen | None, lost: int, left: range) -> None:
    """The rest is read, and by the facts alone, so that a replay reads the same."""
    ranges = [Range("sales/0", "a", 0, 3, 7)]

    facts = lost_since(ranges, seen)

    assert len(facts) == lost
    assert offsets(readable(ranges, facts)) == Counter(("sales/0", n) for n in left)
    refuse_lost(SKIPPING, facts)
    if lost:
        with pytest.raises(Refused, match="lost: offsets 3 to"):
            refuse_lost(TOPIC, facts)


@pytest.mark.parametrize(
    "options, word",
    [
        ({"topic": "a topic"}, "topic 'a topic'"),
        ({"servers": " "}, "servers is empty"),
        ({"servers": "a:1,localhost"}, "'localhost' in servers is not of the form host:port"),
        ({"servers": "https://a:1/x"}, "is not of the form host:port"),
        ({"start": datetime(2026, 1, 1)}, "no time zone"),
        ({"start": "first"}, "start='first'"),
        ({"max_offsets_a_batch": 0}, "at least 1"),
        ({"isolation": "read_some"}, "isolation='read_some'"),
        ({"on_loss": "ignore"}, "on_loss='ignore'"),
        ({"options": {"isolation.level": "read_committed"}}, "the platform's to set"),
        ({"options": {"sasl.jaas.config": "… password='hunter2'"}}, "is a secret"),
        ({"options": {"ssl.keystore.password": "hunter2"}}, "is a secret"),
    ],
)
def test_a_wrong_declaration_is_refused(options: dict[str, Any], word: str) -> None:
    """With what is wrong; a secret is not in the message."""
    with pytest.raises(Refused, match=word) as refused:
        Kafka(**{"topic": "sales", "servers": "localhost:9092", **options})
    assert "hunter2" not in str(refused.value)


def test_what_is_declared_names_no_server_and_no_secret() -> None:
    """The identity, which the log keeps, has neither; the text of a declaration, which an error may show, has no
    secret."""
    declared = Kafka(topic="sales", servers="internal:9092", options={"sasl.jaas.config": "env:SALES_JAAS"})

    assert of(declared) == {"kind": "kafka", "topic": "sales", "format": "json", "isolation": "read_committed"}
    assert "env:SALES_JAAS" in repr(declared)


def declared(**options: Any) -> Pipeline:
    """A pipeline over the topic, with other options."""
    return replace(SHOP, source=replace(TOPIC, **options))


@pytest.mark.parametrize(
    "changed, needs",
    [
        (
            {
                "servers": "other:9092",
                "start": "latest",
                "max_offsets_a_batch": 5,
                "on_loss": "skip",
                "options": {"a": "b"},
            },
            [],
        ),
        ({"topic": "others"}, [("topic", Need.NAME)]),
        ({"key": "id"}, [("key", Need.NOTHING)]),
        ({"isolation": "read_uncommitted"}, [("isolation", Need.NOTHING)]),
    ],
)
def test_a_change_of_the_topic_needs_what_is_stated(changed: dict[str, Any], needs: list[tuple[str, Need]]) -> None:
    """Servers, options and what to do about a loss may change at any time; another topic is another pipeline."""
    found = changes("receive", receive_parts(declared()), receive_parts(declared(**changed)))

    assert [(one.part, one.need) for one in found] == needs
    same = declarations.fingerprint(declared(), "receive") == declarations.fingerprint(declared(**changed), "receive")
    assert same is (not needs)


def test_files_do_not_become_a_topic_under_the_same_name() -> None:
    """What was read from one says nothing of the other."""
    found = changes("receive", receive_parts(SHOP), receive_parts(declared()))

    assert ("topic", Need.NAME) in [(one.part, one.need) for one in found]


@pytest.mark.parametrize("beside", [{"key": "nothing"}, {"headers": ("cents",)}, {"key": "id", "headers": ("id",)}])
def test_key_and_headers_need_a_column_each(beside: dict[str, Any]) -> None:
    """Declared, of type string, and not twice the same."""
    with pytest.raises(Refused, match="key"):
        declared(**beside)


def test_a_message_is_asked_for_by_partition_and_offset() -> None:
    """Or by the whole place, as the log has it for a topic that was made again."""
    pipeline = replace(declared(), record_id=())

    by_part = asked(pipeline, ["2", "7"]).ids
    assert of_place(of_file("sales/2"), 7) in by_part
    assert of_place(of_file("sales/2@b"), 7) in asked(pipeline, ["sales/2@b", "7"]).ids


def test_a_count_of_files_is_refused_for_a_topic() -> None:
    """--max-files says nothing of it."""
    with pytest.raises(Refused, match="has no files to count"):
        all_sources.source_of(declared(), "shop", 5)
