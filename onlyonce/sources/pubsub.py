"""Pull messages of a Pub/Sub subscription into files of the pipeline's inbox, and acknowledge them. No Spark.

A pull is a single request, and not a stream. A pull run ends: one answer is one file and one
acknowledgement, and no thread holds messages that were not requested. The channel bounds the memory: gRPC drops a
larger answer unread. A stream would acknowledge in the background, where no test could place a kill between the file
and the acknowledgement.

It needs the package google-cloud-pubsub (`pip install 'onlyonce-pipelines[pubsub]'`) and Google's default credentials.
PUBSUB_EMULATOR_HOST names an emulator.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import structlog

from onlyonce import environment, job_main, logs, settings
from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Pipeline
from onlyonce.api.sources import PubSub
from onlyonce.asked import parse
from onlyonce.commitlog.sources import Subscriptions
from onlyonce.core import stored_names
from onlyonce.core.errors import Refused, Retryable
from onlyonce.core.runs import Report
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.failpoints import passing
from onlyonce.sources.pubsub_lines import Flow, Message, line
from onlyonce.tables.stores import sync

ANSWER_SECONDS = 60.0
"""How long an acknowledgement, or a request about the subscription, may take."""
ROLES = "roles/pubsub.subscriber and roles/pubsub.viewer on the subscription"


class TooLarge(Exception):
    """The answer to a pull was larger than allowed. Its messages come again when their deadline has passed."""


@dataclass(frozen=True)
class Facts:
    """The service's answer about a subscription. `deadline` is how long a delivery may stay unacknowledged."""

    topic: str
    deadline: timedelta
    retention: timedelta


class Subscription:
    """One subscription. A context manager: leaving it closes the connection.

    Its methods raise Refused if a person must change something, Retryable while the service is unreachable.
    """

    def __init__(self, source: PubSub) -> None:
        self.source = source
        self._client = _subscriber(source.max_bytes)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def facts(self) -> Facts:
        """Return the facts of the subscription. Raise Refused if it is missing, with the command that creates it."""
        with _told(self.source):
            found = self._client.get_subscription(subscription=self.source.subscription, timeout=ANSWER_SECONDS)
        if found.push_config.push_endpoint:
            raise Refused(
                f"subscription {self.source.subscription} pushes to {found.push_config.push_endpoint}",
                data="nothing was pulled",
                hint=f"make one that is pulled: {self.source.create_command()}",
            )
        deadline = timedelta(seconds=found.ack_deadline_seconds or 10)
        return Facts(found.topic, deadline, found.message_retention_duration or timedelta(days=7))

    def pull(self, want: int, patience: float) -> list[Message]:
        """Return at most `want` messages; none if none has come within `patience` seconds. Raise TooLarge."""
        from google.api_core.exceptions import DeadlineExceeded, ResourceExhausted

        try:
            with _told(self.source):
                answer = self._client.pull(subscription=self.source.subscription, max_messages=want, timeout=patience)
        except DeadlineExceeded:
            return []
        except ResourceExhausted as error:
            if "larger than max" in str(error):
                raise TooLarge from None
            raise Retryable(f"Pub/Sub refuses for now: {error.message}", hint="run the same command again") from error
        return [_message(received) for received in answer.received_messages]

    def acknowledge(self, ack_ids: list[str]) -> str | None:
        """Acknowledge deliveries. Return None, or why it is not known whether that worked.

        Errors of the service are returned, not raised.
        """
        from google.api_core.exceptions import GoogleAPIError

        try:
            self._client.acknowledge(subscription=self.source.subscription, ack_ids=ack_ids, timeout=ANSWER_SECONDS)
        except GoogleAPIError as error:
            return f"{type(error).__name__}: {error}"
        return None


@contextmanager
def publishing() -> Iterator[Any]:
    """Yield Google's plain client for publishing, for `onlyonce.local.feed_messages`.

    Each call is one request, answered when it is stored. Raise Refused without the package or credentials, Retryable if
    the service does not answer.
    """
    with _set_up():
        from google.api_core.exceptions import GoogleAPIError
        from google.pubsub_v1 import PublisherClient

        client = PublisherClient()
    try:
        with client:
            yield client
    except GoogleAPIError as error:
        raise Retryable(
            f"Pub/Sub did not take the messages: {error}",
            data="messages that were sent before are published",
            hint="run the same command again; its messages get new ids, and the same attributes",
        ) from error


def _subscriber(max_bytes: int) -> Any:
    with _set_up():
        import grpc
        from google.cloud import pubsub_v1

        client = pubsub_v1.SubscriberClient
        transport = client.get_transport_class("grpc")
        channel: Any = partial(_channel, transport, max_bytes)
        if emulator := environment.variable("PUBSUB_EMULATOR_HOST"):
            channel = grpc.insecure_channel(emulator, options=[("grpc.max_receive_message_length", max_bytes)])
        return client(transport=transport(channel=channel))


@contextmanager
def _set_up() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise Refused(
            f"Pub/Sub needs the package google-cloud-pubsub: {error}",
            data="nothing was read",
            hint="pip install 'onlyonce-pipelines[pubsub]' where `onlyonce pull` runs",
        ) from error
    except Exception as error:
        if type(error).__name__ != "DefaultCredentialsError":
            raise
        raise Refused(
            f"there are no Google credentials here: {error}",
            data="nothing was read",
            hint=f"set GOOGLE_APPLICATION_CREDENTIALS, for an account with {ROLES}",
        ) from error


def _channel(transport: Any, max_bytes: int, host: str, *, options: list[tuple[str, int]], **others: Any) -> Any:
    # The client's own channel, except that it has no limit of its own.
    limited = [option for option in options if option[0] != "grpc.max_receive_message_length"]
    limited.append(("grpc.max_receive_message_length", max_bytes))
    return transport.create_channel(host, options=limited, **others)


def _message(received: Any) -> Message:
    message = received.message
    size = type(received).pb(received).ByteSize()
    return Message(received.ack_id, message.message_id, dict(message.attributes), message.data, size)


@contextmanager
def _told(source: PubSub) -> Iterator[None]:
    """Translate the service's errors into the platform's. DeadlineExceeded and ResourceExhausted pass through."""
    from google.api_core import exceptions as answers

    try:
        yield
    except answers.NotFound as error:
        raise Refused(
            f"subscription {source.subscription} does not exist",
            data="nothing was read. A subscription gets what is published after it was made; what came before it "
            "is not delivered",
            hint=f"{source.create_command()}   (TOPIC is where the publishers write)",
        ) from error
    except (answers.PermissionDenied, answers.Unauthenticated) as error:
        raise Refused(
            f"Pub/Sub does not let this account read {source.subscription}: {error.message}",
            data="nothing was read",
            hint=f"give it {ROLES}",
        ) from error
    except (answers.InvalidArgument, answers.FailedPrecondition) as error:
        raise Refused(
            f"Pub/Sub refuses to deliver {source.subscription}: {error.message}",
            data="what was pulled before is in the inbox; what is not acknowledged comes again",
            hint="see how the subscription is set up; it must be one that is pulled",
        ) from error
    except (answers.DeadlineExceeded, answers.ResourceExhausted):
        raise
    except (answers.GoogleAPICallError, answers.RetryError) as error:
        raise Retryable(
            f"Pub/Sub did not answer: {error}",
            data="nothing is half done; what is not acknowledged comes again",
            hint="run the same command again",
        ) from error


# Entry point: pull the messages of a subscription as files.
#
# The task `pull` of the DAG `<pipeline>_stream` and `onlyonce pull` run it. Messages are pulled, written to a file and
# flushed to the disk, and only then acknowledged. The stream reads the pulled files like any other producer's files. A
# message that is delivered again is pulled again, and is a duplicate by the id catalog. So pull runs need no lock:
# two concurrent ones share the messages, and a kill at any point only causes a second delivery
# (docs/specification/pull.md).


log = structlog.get_logger()

PREFIX = stored_names.PULLED_PREFIX
SHORTEST_PULL = 2.0
"""Seconds. If an answer comes after the pull has timed out, it is lost until its deadline."""
SLACK = 0.9
"""The share of the deadline after which an acknowledgement is not trusted."""


@dataclass
class Pulled:
    """The progress of a pull run."""

    messages: int = 0
    files: int = 0
    unsure: int = 0
    drained: bool = False
    reasons: list[str] = field(default_factory=list)


def main(argv: list[str]) -> Report:
    """Pull until the subscription is drained, or the time is over. Raise the platform's errors."""
    asked = parse("pull", argv)
    logs.configure(pipeline=asked.pipeline, run_id=asked.run_id)
    pipeline = declarations.one(asked.pipeline, asked.pipelines)
    source = pipeline.source
    if not isinstance(source, PubSub):
        raise Refused(
            f"{pipeline.name} reads {', '.join(pipeline.sources) or type(source).__name__}: there is nothing to pull",
            hint=f"onlyonce run {pipeline.name}",
        )
    database = Database(settings.database_url(), "onlyonce/pull")
    migrate(database.url)
    with Subscription(source) as subscription:
        facts = subscription.facts()
        Subscriptions(database).register(source.subscription, pipeline.name)
        pulled = _Puller(pipeline, source, database, subscription, facts).pull()
    waiting = Subscriptions(database).unacknowledged(source.subscription)
    return _report(pipeline, source, asked.run_id, pulled, waiting)


class _Puller:
    """One pull run: pull after pull, each a file and an acknowledgement."""

    def __init__(
        self, pipeline: Pipeline, source: PubSub, database: Database, subscription: Subscription, facts: Facts
    ) -> None:
        self.pipeline, self.source, self.database = pipeline, source, database
        self.subscription, self.facts = subscription, facts
        self.inbox = settings.inbox(pipeline.name, source.inbox)
        self.pulled = Pulled()
        self.flow = Flow.of(source)
        self.bucket = 0

    def pull(self) -> Pulled:
        """Pull until a pull is empty after a while without messages, or until the time is over."""
        _make_durable(self.inbox)
        self.bucket = Subscriptions(self.database).newest_bucket(self.pipeline.name)
        now, silence = time.monotonic(), self.source.drained_after.total_seconds()
        deadline = self.facts.deadline.total_seconds()
        end, quiet = now + self.source.pull_for.total_seconds(), now + silence
        while now < end:
            try:
                messages = self.subscription.pull(
                    self.flow.want, max(SHORTEST_PULL, min(end - now, quiet - now, deadline / 3))
                )
            except TooLarge:
                # The messages come again after their deadline. This pull run waits for them, and requests fewer now.
                self.flow = self.flow.overflowed()
                quiet = time.monotonic() + deadline + silence
                log.warning("answer too large, taking fewer", messages_at_most=self.flow.want)
                messages = []
            if messages:
                self._take(messages, now)
                self.flow = self.flow.after([message.size for message in messages])
                quiet = max(quiet, time.monotonic() + silence)
            elif time.monotonic() >= quiet:
                self.pulled.drained = True
                break
            now = time.monotonic()
        return self.pulled

    def _take(self, messages: list[Message], pulled_at: float) -> None:
        """Do the steps of docs/specification/pull.md for the answer to one pull that began at `pulled_at`."""
        passing("pull-after-answer")
        path = self.inbox / f"{PREFIX}{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{uuid4().hex}.jsonl"
        hidden = path.with_name(f".{path.name}")
        _write(hidden, messages, self.source)
        passing("pull-after-write")
        source, ids = self.source.subscription, sorted({message.message_id for message in messages})
        try:
            self._note(path, ids)
        except Retryable:
            hidden.unlink()
            raise
        passing("pull-after-note")
        hidden.rename(path)
        sync(self.inbox)
        self.pulled.messages += len(messages)
        self.pulled.files += 1
        passing("pull-before-acknowledge")
        unsure = self.subscription.acknowledge([message.ack_id for message in messages])
        passing("pull-after-acknowledge")
        if unsure is None and time.monotonic() - pulled_at > SLACK * self.facts.deadline.total_seconds():
            unsure = "the deadline had passed when it was acknowledged"
        if unsure is not None:
            self.pulled.unsure += len(messages)
            self.pulled.reasons.append(unsure)
            log.warning("not known to be acknowledged", path=str(path), messages=len(messages), why=unsure)
            return
        Subscriptions(self.database).settle(source, ids)
        passing("pull-after-settle")
        log.info("pulled", path=str(path), messages=len(messages))

    def _note(self, path: Path, ids: list[str]) -> None:
        name, subscription, retention = self.pipeline.name, self.source.subscription, self.facts.retention
        Subscriptions(self.database).note(str(path), subscription, name, self.bucket, ids, retention)


def _write(hidden: Path, messages: list[Message], source: PubSub) -> None:
    # Python code for each message is fine here: the client yields them one by one, and takes longer for each.
    with hidden.open("wb") as file:
        for message in messages:
            file.write(line(message, source).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _make_durable(folder: Path) -> None:
    """Create the inbox so that it survives a power failure."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync(made.parent)


def _report(pipeline: Pipeline, source: PubSub, run_id: str, pulled: Pulled, waiting: int) -> Report:
    facts = {
        "subscription": source.subscription, "messages": pulled.messages, "files": pulled.files,
        "drained": pulled.drained, "not known to be acknowledged": waiting,
    }  # fmt: skip
    warnings = [f"{pulled.unsure} messages may be delivered again: {pulled.reasons[-1]}"] if pulled.unsure else []
    return Report(f"{pipeline.name}: pulled", run_id, facts, {}, warnings)


def cli() -> None:
    """Run `python -m onlyonce.sources.pubsub`."""
    job_main.run(main)


if __name__ == "__main__":
    cli()
