"""Entry point: land the messages of a Pub/Sub subscription as files in the pipeline's inbox. No Spark.

The task `land` of the DAG `<pipeline>_stream` and `onlyonce land` run it. Messages are pulled, written to a file and
flushed to the disk, and only then acknowledged. The stream reads the landed files like those of any other producer. A
message that is delivered again is landed again, and is a duplicate by the record catalog. So landings need no lock: two
at once share the messages, and a kill at any point only causes a second delivery (docs/specification/pull.md).

Errors: Refused (no such subscription, another pipeline's, no credentials), Retryable while Pub/Sub or the log is away.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import structlog

from onlyonce import job_main, logs, settings
from onlyonce.asked import parse
from onlyonce.commitlog.subscriptions import Subscriptions
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.declare import loading as declarations
from onlyonce.declare.pipeline import Pipeline, PubSub
from onlyonce.failpoints import passing
from onlyonce.model import stored_names
from onlyonce.model.errors import Refused, Retryable
from onlyonce.model.report import Report
from onlyonce.sources.landing import Flow, Message, line
from onlyonce.sources.pubsub import Facts, Subscription, TooLarge
from onlyonce.storage.durable import sync

log = structlog.get_logger()

PREFIX = stored_names.PULLED_PREFIX
SHORTEST_PULL = 2.0
"""Seconds. An answer that comes after the pull has given up is lost until its deadline."""
SLACK = 0.9
"""The share of the deadline after which an acknowledgement is not trusted."""


@dataclass
class Landed:
    """What a landing has done so far."""

    messages: int = 0
    files: int = 0
    unsure: int = 0
    drained: bool = False
    reasons: list[str] = field(default_factory=list)


def main(argv: list[str]) -> Report:
    """Land until the subscription is drained, or the time is over. Raises the platform's errors."""
    asked = parse("land", argv)
    logs.configure(pipeline=asked.pipeline, run_id=asked.run_id)
    pipeline = declarations.one(asked.pipeline, asked.pipelines)
    source = pipeline.source
    if not isinstance(source, PubSub):
        raise Refused(
            f"{pipeline.name} reads {', '.join(pipeline.sources) or type(source).__name__}: there is nothing to land",
            hint=f"onlyonce run {pipeline.name}",
        )
    database = Database(settings.database_url(), "onlyonce/land")
    migrate(database.url)
    with Subscription(source) as subscription:
        facts = subscription.facts()
        Subscriptions(database).register(source.subscription, pipeline.name)
        landed = _Lander(pipeline, source, database, subscription, facts).land()
    waiting = Subscriptions(database).unacknowledged(source.subscription)
    return _report(pipeline, source, asked.run_id, landed, waiting)


class _Lander:
    """One landing: pull after pull, each a file and an acknowledgement."""

    def __init__(
        self, pipeline: Pipeline, source: PubSub, database: Database, subscription: Subscription, facts: Facts
    ) -> None:
        self.pipeline, self.source, self.database = pipeline, source, database
        self.subscription, self.facts = subscription, facts
        self.inbox = settings.inbox(pipeline.name, source.inbox)
        self.landed = Landed()
        self.flow = Flow.of(source)
        self.bucket = 0

    def land(self) -> Landed:
        """Until a pull comes back empty after a while without messages, or the time is over."""
        _make_durable(self.inbox)
        self.bucket = Subscriptions(self.database).newest_bucket(self.pipeline.name)
        now, silence = time.monotonic(), self.source.drained_after.total_seconds()
        deadline = self.facts.deadline.total_seconds()
        end, quiet = now + self.source.land_for.total_seconds(), now + silence
        while now < end:
            try:
                messages = self.subscription.pull(
                    self.flow.want, max(SHORTEST_PULL, min(end - now, quiet - now, deadline / 3))
                )
            except TooLarge:
                # They come again after their deadline, and this landing waits for them: it takes fewer now.
                self.flow = self.flow.overflowed()
                quiet = time.monotonic() + deadline + silence
                log.warning("answer too large, taking fewer", messages_at_most=self.flow.want)
                messages = []
            if messages:
                self._take(messages, now)
                self.flow = self.flow.after([message.size for message in messages])
                quiet = max(quiet, time.monotonic() + silence)
            elif time.monotonic() >= quiet:
                self.landed.drained = True
                break
            now = time.monotonic()
        return self.landed

    def _take(self, messages: list[Message], pulled_at: float) -> None:
        """The steps of docs/specification/pull.md, for the answer to one pull, which was asked for at `pulled_at`."""
        passing("land-after-pull")
        path = self.inbox / f"{PREFIX}{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{uuid4().hex}.jsonl"
        hidden = path.with_name(f".{path.name}")
        _write(hidden, messages, self.source)
        passing("land-after-write")
        source, ids = self.source.subscription, sorted({message.message_id for message in messages})
        try:
            self._note(path, ids)
        except Retryable:
            hidden.unlink()
            raise
        passing("land-after-note")
        hidden.rename(path)
        sync(self.inbox)
        self.landed.messages += len(messages)
        self.landed.files += 1
        passing("land-before-acknowledge")
        unsure = self.subscription.acknowledge([message.ack_id for message in messages])
        passing("land-after-acknowledge")
        if unsure is None and time.monotonic() - pulled_at > SLACK * self.facts.deadline.total_seconds():
            unsure = "the deadline had passed when it was acknowledged"
        if unsure is not None:
            self.landed.unsure += len(messages)
            self.landed.reasons.append(unsure)
            log.warning("not known to be acknowledged", path=str(path), messages=len(messages), why=unsure)
            return
        Subscriptions(self.database).settle(source, ids)
        passing("land-after-settle")
        log.info("landed", path=str(path), messages=len(messages))

    def _note(self, path: Path, ids: list[str]) -> None:
        name, subscription, retention = self.pipeline.name, self.source.subscription, self.facts.retention
        Subscriptions(self.database).note(str(path), subscription, name, self.bucket, ids, retention)


def _write(hidden: Path, messages: list[Message], source: PubSub) -> None:
    # A step of Python for each message: the client gives them one by one, and takes longer for each than this does.
    with hidden.open("wb") as file:
        for message in messages:
            file.write(line(message, source).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _make_durable(folder: Path) -> None:
    """Make the inbox, so that it is there after a power failure too."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync(made.parent)


def _report(pipeline: Pipeline, source: PubSub, run_id: str, landed: Landed, waiting: int) -> Report:
    facts = {
        "subscription": source.subscription, "messages": landed.messages, "files": landed.files,
        "drained": landed.drained, "not known to be acknowledged": waiting,
    }  # fmt: skip
    warnings = [f"{landed.unsure} messages may be delivered again: {landed.reasons[-1]}"] if landed.unsure else []
    return Report(f"{pipeline.name}: landed", run_id, facts, {}, warnings)


def cli() -> None:
    """`python -m onlyonce.sources.land`."""
    job_main.run(main)


if __name__ == "__main__":
    cli()
