"""Pub/Sub against Google's own fake: pulled before acknowledged, at any kill; nothing lost, and what is double is
known."""

from __future__ import annotations

import base64
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docs.generate import specification
from onlyonce import settings
from onlyonce.catalog.expiry import Collector
from onlyonce.commitlog.sources import Subscriptions
from onlyonce.core.errors import Refused
from onlyonce.core.line_values import WHOLE_MESSAGE
from onlyonce.core.runs import Report
from onlyonce.database.connect import run
from onlyonce.database.statements import make_home
from onlyonce.local import feed, feed_messages
from onlyonce.sources import backlog, pubsub
from onlyonce.sources.pubsub_lines import Flow, Message
from tests.contract.conftest import Log
from tests.contract.receive import Receive
from tests.support.messages import PIPELINES
from tests.support.platform import ROOT
from tests.support.pubsub import PROJECT, Fake, binary, pulled, running
from tests.support.pullers import Pullers

POINTS = specification.points("pull-")
LARGE = b'{"text":"' + b"x" * 4_000_000 + b'"}'
MESSAGES: dict[str, Any] = {pipeline.name: pipeline for pipeline in PIPELINES}
KEPT_BACK = "SELECT path, bucket, cardinality(message_ids) FROM onlyonce_private.unacknowledged"


class PullRun:
    """The pipelines of tests/support/messages.py on a fake, a log and a home of this test's own."""

    def __init__(self, fake: Fake, log: Log, home: Path, pullers: Pullers) -> None:
        self.fake, self.log, self.pullers = fake, log, pullers
        self.passes = home / "failpoints"
        self.passes.mkdir()

    def pull(self, pipeline: str = "sales") -> Report:
        """A pull run in this process."""
        return pubsub.main([pipeline])

    def start(self, point: str = "", action: str = "kill", pipeline: str = "sales") -> int:
        """A pull run in a process and session of its own, with a fail-point."""
        asked = {"ONLYONCE_FAILPOINTS": f"{point}:1:{action}"} if point else {}
        return self.pullers.start(pipeline, ONLYONCE_FAILPOINT_DIR=str(self.passes), **asked)

    def killed(self, point: str, pipeline: str = "sales") -> None:
        """A pull run that dies at a point."""
        assert self.pullers.wait(self.start(point, pipeline=pipeline))[0] == -signal.SIGKILL

    def deadlines_pass(self) -> None:
        """What was delivered and not acknowledged may be delivered again."""
        self.fake.tell("advance 61s")

    def ids(self, pipeline: str = "sales", column: str = "message_id") -> Counter[Any]:
        """The record ids of the pulled lines."""
        return Counter(json.loads(line)[column] for line in pulled(settings.inbox(pipeline)))

    def open(self) -> list[tuple[Any, ...]]:
        """What is noted as pulled and not acknowledged."""
        return self.log.rows(KEPT_BACK)


@pytest.fixture(scope="module")
def pullers() -> Iterator[Pullers]:
    """Where pull runs are forked from."""
    binary()  # skips
    with Pullers() as started:
        yield started


@pytest.fixture
def pull_run(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pullers: Pullers) -> Iterator[PullRun]:
    """With
    both subscriptions made.
    """
    with running(monkeypatch) as fake:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", fake.address)
        monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
        monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
        make_home()
        monkeypatch.setenv("ONLYONCE_PIPELINES", str(ROOT / "tests/support/messages.py"))
        fake.subscribe("sales")
        fake.subscribe("orders")
        yield PullRun(fake, log, tmp_path, pullers)


def sale(number: int) -> dict[str, object]:
    """A payload."""
    return {"shop": "a", "at": "2026-03-01T12:00:00Z", "cents": number, "weight": 1.5}


def test_each_message_is_pulled_once_with_its_id_and_then_acknowledged(pull_run: PullRun) -> None:
    """The line is the payload and the message id; nothing waits any more, nothing is noted, and a second pull run adds
    nothing."""
    sent = dict(zip(pull_run.fake.publish(*map(sale, range(2500))), range(2500), strict=True))
    report = pull_run.pull()

    lines = [json.loads(line) for line in pulled(settings.inbox("sales"))]
    assert Counter((line["message_id"], line["cents"]) for line in lines) == Counter(sent.items())
    assert {frozenset(line) for line in lines} == {frozenset({*sale(0), "message_id"})}
    assert (report.facts["messages"], report.facts["drained"], report.warnings) == (2500, True, [])
    assert pull_run.fake.waiting(f"{PROJECT}/subscriptions/sales") == Counter()
    assert pull_run.open() == []
    assert pull_run.pull().facts["messages"] == 0
    assert len(lines) == len(pulled(settings.inbox("sales")))


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_point_loses_nothing(pull_run: PullRun, point: str) -> None:
    """The next pull_run, after the deadline, has every message; what is double has the same id.

    A file is whole or not there.
    """
    sent = Counter(pull_run.fake.publish(*map(sale, range(5))))
    pull_run.killed(point)
    before = pull_run.ids()
    pull_run.deadlines_pass()
    again = pull_run.pull().facts["messages"]

    assert before in (Counter(), sent)
    assert pull_run.ids() == (before + sent if again else sent)
    assert again == (0 if point in ("pull-after-acknowledge", "pull-after-settle") else 5)
    assert (before == Counter()) is (POINTS.index(point) < POINTS.index("pull-before-acknowledge"))
    assert pull_run.fake.waiting(f"{PROJECT}/subscriptions/sales") == Counter()
    noted = {path: number for path, _, number in pull_run.open()}
    assert sum(noted.values()) == (5 if point == "pull-after-acknowledge" else 0)


def test_a_lost_acknowledgement_is_a_second_delivery_of_the_same_id(pull_run: PullRun) -> None:
    """The service said that it was done: nobody knows, and the ids are in both files."""
    sent = Counter(pull_run.fake.publish(*map(sale, range(7))))
    pull_run.fake.tell("lose 2")
    pull_run.pull()
    pull_run.deadlines_pass()
    pull_run.pull()

    assert pull_run.ids() == sent + sent
    assert pull_run.fake.waiting(f"{PROJECT}/subscriptions/sales") == Counter()


def test_a_refused_acknowledgement_is_noted_until_the_message_is_acknowledged(pull_run: PullRun) -> None:
    """The pull run goes on, and says so."""
    pull_run.fake.publish(*map(sale, range(7)))
    pull_run.fake.tell("refuse 2")
    report = pull_run.pull()

    assert sum(number for _, _, number in pull_run.open()) == 7
    assert report.facts["not known to be acknowledged"] == 7
    assert "7 messages may be delivered again" in report.warnings[0]
    pull_run.deadlines_pass()
    assert pull_run.pull().facts["not known to be acknowledged"] == 0
    assert pull_run.open() == []


def test_an_acknowledgement_after_the_deadline_is_not_trusted(
    pull_run: PullRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another pull run got the messages meanwhile: both have them, and the later acknowledgement settles both files."""
    sent = Counter(pull_run.fake.publish(*map(sale, range(4))))
    slow = pull_run.start("pull-before-acknowledge", "stop")
    pull_run.pullers.wait_stopped(slow)
    pull_run.deadlines_pass()
    with monkeypatch.context() as patch:
        patch.setattr(pubsub, "SLACK", 0)  # of our clock no time has passed
        assert "the deadline had passed" in pull_run.pull().warnings[0]
    assert sorted(number for _, _, number in pull_run.open()) == [4, 4]
    os.kill(slow, signal.SIGCONT)
    assert pull_run.pullers.wait(slow)[0] == 0

    assert pull_run.ids() == sent + sent
    assert pull_run.open() == []


def test_two_pull_runs_at_once_share_the_messages(pull_run: PullRun) -> None:
    """Each message is pulled by one of them, in files of different names; none is lost."""
    sent = Counter(pull_run.fake.publish(*map(sale, range(3000))))
    both = [pull_run.start(), pull_run.start()]

    assert [pull_run.pullers.wait(one)[0] for one in both] == [0, 0]
    assert pull_run.ids() == sent
    assert pull_run.open() == []


def test_any_payload_is_pulled(pull_run: PullRun) -> None:
    """One that is no JSON object is a line with all that it held; the others go on.

    No crash, and all are acknowledged.
    """
    poison = [b"", b"no json", b'{"a": 1', b"[1]", b"\xff\xfe\x00", b'{"a":1}\n{"b":2}', b"[" * 100_000, b'{"a":"\n"}']
    ids = pull_run.fake.publish(*poison, sale(1), reason="why")
    pull_run.pull()

    lines = pulled(settings.inbox("sales"))
    whole = {}
    for line in lines:
        if line.startswith(WHOLE_MESSAGE):
            found = json.loads(line.removeprefix(WHOLE_MESSAGE))
            whole[found["message_id"]] = (
                base64.b64decode(found["base64"]) if "base64" in found else found["data"].encode()
            )
            assert found["attributes"] == {"reason": "why"}
    assert whole == dict(zip(ids, poison, strict=False))
    assert [json.loads(line)["message_id"] for line in lines if not line.startswith(WHOLE_MESSAGE)] == [ids[-1]]
    assert pull_run.fake.waiting(f"{PROJECT}/subscriptions/sales") == Counter()


def test_memory_is_bounded_by_the_declared_bytes(pull_run: PullRun) -> None:
    """160 MB of large messages among small ones: the pull run takes about five times `max_bytes`, and none is lost."""
    pull_run.fake.subscribe("large")
    small = pull_run.fake.publish(*map(sale, range(1000)))
    before = pull_run.pullers.wait(pull_run.start(pipeline="orders"))[1]
    large = [pull_run.fake.publish(LARGE)[0] for _ in range(40)]
    code, used = pull_run.pullers.wait(pull_run.start(pipeline="large"))

    assert code == 0
    assert pull_run.ids("large") == Counter(small) + Counter(large)
    assert (used - before) * 1024 < 6 * MESSAGES["large"].source.max_bytes < len(LARGE) * len(large)


def test_an_answer_that_is_too_large_is_not_read_and_its_messages_are_pulled_later(
    pull_run: PullRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes leap after small messages: the pull run takes fewer at a time and waits for those that it threw away."""
    pull_run.fake.subscribe("large", ack_deadline_seconds=10)
    large = [pull_run.fake.publish(LARGE)[0] for _ in range(8)]
    overflows = []
    monkeypatch.setattr(Flow, "of", lambda source: Flow(1000, source.max_bytes, want=1000))
    pull = pubsub.Subscription.pull

    def watched(subscription: pubsub.Subscription, want: int, patience: float) -> list[Message]:
        try:
            return pull(subscription, want, patience)
        except pubsub.TooLarge:
            overflows.append(want)
            pull_run.fake.tell("advance 11s")
            raise

    monkeypatch.setattr(pubsub.Subscription, "pull", watched)
    report = pull_run.pull("large")

    assert overflows == [1000]
    assert pull_run.ids("large") == Counter(large)
    assert report.facts["drained"]


def test_a_feed_publishes_the_same_records_for_the_same_seed(pull_run: PullRun) -> None:
    """In the schedule's order and number, re-deliveries under new message ids; each has its record's id as
    attribute."""
    source = MESSAGES["orders"].source
    sent = feed_messages.feed_pubsub("user_counts", source, duplicates=0.2, seed=3, files=None, records=300)
    pull_run.pull("orders")

    arrivals, parts = feed.delivered("user_counts", duplicates=0.2, seed=3, files=None, records=300)
    meant = Counter(arrivals["event_id"].iloc[np.concatenate(parts)])
    assert (sent.messages, sent.distinct, sent.duplicates) == (360, 300, 60)
    assert pull_run.ids("orders", "order") == meant
    assert {json.loads(one)["event_id"] == json.loads(one)["order"] for one in pulled(settings.inbox("orders"))} == {
        True
    }


def test_a_missing_subscription_is_refused_with_the_command_that_makes_it(pull_run: PullRun) -> None:
    """Before anything is registered."""
    pull_run.fake.subscriber.delete_subscription(subscription=f"{PROJECT}/subscriptions/sales")
    with pytest.raises(Refused, match="does not exist") as refusal:
        pull_run.pull()

    assert "gcloud pubsub subscriptions create sales --project=test" in refusal.value.hint
    assert "what came before it is not" in refusal.value.data
    assert pull_run.log.rows("SELECT * FROM onlyonce_private.subscriptions") == []


def test_what_was_published_before_the_subscription_is_not_delivered(pull_run: PullRun) -> None:
    """As the refusal says."""
    topic = f"{PROJECT}/topics/other"
    pull_run.fake.publisher.create_topic(name=topic)
    pull_run.fake.publish(sale(1), topic=topic)
    pull_run.fake.subscriber.delete_subscription(subscription=f"{PROJECT}/subscriptions/sales")
    pull_run.fake.subscribe("sales", topic)
    later = pull_run.fake.publish(sale(2), topic=topic)
    pull_run.pull()

    assert pull_run.ids() == Counter(later)


def test_a_subscription_belongs_to_one_pipeline(pull_run: PullRun) -> None:
    """A second one is refused before it pulls; the first one goes on."""
    pull_run.pull("sales")
    sent = pull_run.fake.publish(sale(1))
    with pytest.raises(Refused, match="belongs to pipeline sales") as refusal:
        pull_run.pull("thief")

    assert "make a subscription for thief alone" in refusal.value.hint
    assert not settings.inbox("thief").exists()
    pull_run.pull("sales")
    assert pull_run.ids() == Counter(sent)


def test_a_subscription_that_pushes_is_refused(pull_run: PullRun) -> None:
    """There is nothing to pull from it."""
    pull_run.fake.subscriber.delete_subscription(subscription=f"{PROJECT}/subscriptions/sales")
    pull_run.fake.subscribe("sales", push_config={"push_endpoint": "https://example.com/"})
    with pytest.raises(Refused, match="pushes to"):
        pull_run.pull()


def test_a_pipeline_of_files_has_nothing_to_pull(pull_run: PullRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the refusal says what reads files."""
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(ROOT / "tests/support/shop.py"))
    with pytest.raises(Refused, match="reads Files: there is nothing to pull") as refusal:
        pull_run.pull("shop")
    assert refusal.value.hint == "onlyonce run shop"


def test_the_oldest_unacknowledged_message_holds_the_floor(pull_run: PullRun) -> None:
    """While it may be delivered again no id goes that was known when it was pulled; then the floor moves on."""
    pull_run.fake.publish(sale(1))
    pull_run.pull()
    stream = Receive(pull_run.log, "sales", partitions=1)
    batches(stream, 100, 101)
    pull_run.fake.publish(sale(2))
    pull_run.killed("pull-before-acknowledge")
    batches(stream, 102, 103, 104, 105, 106)

    held = [bucket for _, bucket, _ in pull_run.open()]
    assert held == [101]
    assert floor(pull_run.log, horizon=2) == 101
    pull_run.deadlines_pass()
    pull_run.pull()
    assert floor(pull_run.log, horizon=2) == 104


def test_a_pull_run_that_slept_through_the_horizon_pulls_nothing(pull_run: PullRun) -> None:
    """Another one had its messages meanwhile, and their ids are collected: pulled again, they would be kept again."""
    stream = Receive(pull_run.log, "sales", partitions=1)
    batches(stream, 100, 101)
    sent = Counter(pull_run.fake.publish(*map(sale, range(3))))
    slow = pull_run.start("pull-after-write", "stop")
    pull_run.pullers.wait_stopped(slow)
    pull_run.deadlines_pass()
    pull_run.pull()
    batches(stream, 102, 103, 104, 105, 106)
    assert floor(pull_run.log, horizon=2) == 104
    os.kill(slow, signal.SIGCONT)

    assert pull_run.pullers.wait(slow)[0] == 75
    assert pull_run.ids() == sent
    assert [path.name for path in settings.inbox("sales").iterdir() if path.name.startswith(".")] == []
    assert pull_run.open() == []


def test_what_the_subscription_has_thrown_away_holds_nothing(pull_run: PullRun) -> None:
    """Acknowledged, but killed before that was noted: it never comes again, and after the retention the floor moves
    on."""
    stream = Receive(pull_run.log, "sales", partitions=1)
    batches(stream, 100, 101)
    pull_run.fake.publish(sale(1))
    pull_run.killed("pull-after-acknowledge")
    batches(stream, 102, 103, 104, 105, 106)

    assert floor(pull_run.log, horizon=2) == 101
    pull_run.log.rows(
        "UPDATE onlyonce_private.unacknowledged SET pulled_at = now() - interval '8 days', lapses_at = now() - "
        "interval '1 day'"
    )
    assert floor(pull_run.log, horizon=2) == 104
    pull_run.pull()
    assert pull_run.open() == []


def test_a_message_is_settled_in_every_file_that_has_it(log: Log) -> None:
    """Some of a file or all of it; of another subscription none."""
    one, other = "projects/p/subscriptions/one", "projects/p/subscriptions/other"

    def work(connection: Any) -> None:
        for name, pipeline in ((one, "sales"), (other, "orders")):
            Subscriptions(connection).register(name, pipeline)
        for path, name, ids in (("a", one, "123"), ("b", one, "34"), ("c", one, "5"), ("d", other, "34")):
            pipeline = "sales" if name == one else "orders"
            Subscriptions(connection).note(path, name, pipeline, 0, list(ids), timedelta(days=7))
        Subscriptions(connection).settle(one, ["3", "4"])

    run(log.database, work)
    left = log.multiset("SELECT path, unnest(message_ids) FROM onlyonce_private.unacknowledged")
    assert left == Counter([("a", "1"), ("a", "2"), ("c", "5"), ("d", "3"), ("d", "4")])


def batches(stream: Receive, *buckets: int) -> None:
    """Committed receive batches without records."""
    for bucket in buckets:
        batch = stream.begin(bucket)
        stream.land(batch, stream.units(batch, []))
        stream.end(batch, 0)


def floor(log: Log, horizon: int) -> int:
    """The floor of the pipeline after a look of the collection."""
    return Collector(log.database).raise_floor("sales", horizon)[1]


def test_lag_knows_what_is_pulled_and_not_what_waits_at_the_service(pull_run: PullRun) -> None:
    """Google's client has no number of waiting messages: null, with the reason. Messages that may come again are in
    the inbox already, so the log's number of them is no part of it."""
    pull_run.fake.publish(*map(sale, range(5)))
    pull_run.killed("pull-before-acknowledge")
    pull_run.fake.publish(*map(sale, range(5, 8)))
    [path] = settings.inbox("sales").glob("*.jsonl")

    [(asked_at, found)] = backlog.Asker().ask([MESSAGES["sales"]], {}).values()

    assert (found.records, found.bytes, found.failed) == (None, None, False)
    assert (found.detail, found.why) == ({"pulled_files": 1}, backlog.NO_COUNT)
    assert found.oldest is not None
    assert found.oldest.timestamp() == pytest.approx(path.stat().st_mtime, abs=1e-5)
    assert found.oldest <= asked_at
    noted = pull_run.log.rows("SELECT unacknowledged FROM onlyonce.subscriptions WHERE pipeline = 'sales'")
    assert noted == [(5,)]
