"""Google's Pub/Sub client, and the meaning of its errors. The only module that pulls and acknowledges.

A pull is a single request, and not a stream. A landing is a drain that ends: one answer is one file and one
acknowledgement, and no thread holds messages that nobody has asked for. The channel itself bounds the memory: gRPC
throws a larger answer away unread. A stream would acknowledge in the background, where no test could place a kill
between the file and the acknowledgement.

Who calls it: `onlyonce.sources.land`, `onlyonce.local.feed.publish`. Needs the package google-cloud-pubsub (`pip
install 'onlyonce-pipelines[pubsub]'`) and Google's default credentials on the machine. PUBSUB_EMULATOR_HOST names an
emulator.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from onlyonce import environment
from onlyonce.declare.sources.sources import PubSub
from onlyonce.model.errors import Refused, Retryable
from onlyonce.sources.landing import Message

ANSWER_SECONDS = 60.0
"""How long an acknowledgement, or a look at the subscription, may take."""
ROLES = "roles/pubsub.subscriber and roles/pubsub.viewer on the subscription"


class TooLarge(Exception):
    """The answer to a pull was larger than it may be. Its messages come again when their deadline has passed."""


@dataclass(frozen=True)
class Facts:
    """What the service says of a subscription. `deadline` is how long a delivery may stay unacknowledged."""

    topic: str
    deadline: timedelta
    retention: timedelta


class Subscription:
    """One subscription. A context manager: leaving it closes the connection.

    Raises Refused where a person must change something, Retryable while the service is away.
    """

    def __init__(self, source: PubSub) -> None:
        self.source = source
        self._client = _subscriber(source.max_bytes)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def facts(self) -> Facts:
        """Look the subscription up. Raises Refused when it is not there, with the command that makes it."""
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
        """At most `want` messages; none when none has come within `patience` seconds. Raises TooLarge."""
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
        """Acknowledge deliveries; gives None, or why it is not known to have worked.

        Raises nothing of the service's.
        """
        from google.api_core.exceptions import GoogleAPIError

        try:
            self._client.acknowledge(subscription=self.source.subscription, ack_ids=ack_ids, timeout=ANSWER_SECONDS)
        except GoogleAPIError as error:
            return f"{type(error).__name__}: {error}"
        return None


@contextmanager
def publishing() -> Iterator[Any]:
    """Google's plain client for publishing: each call is one request, answered when it is stored.

    For `onlyonce.local.feed.publish`.

    Raises Refused without the package or credentials, Retryable when the service does not answer.
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
            data="those that were sent before are published",
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
            hint="pip install 'onlyonce-pipelines[pubsub]' where landings run",
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
    # The client's own channel but for the limit: it has none.
    limited = [option for option in options if option[0] != "grpc.max_receive_message_length"]
    limited.append(("grpc.max_receive_message_length", max_bytes))
    return transport.create_channel(host, options=limited, **others)


def _message(received: Any) -> Message:
    message = received.message
    size = type(received).pb(received).ByteSize()
    return Message(received.ack_id, message.message_id, dict(message.attributes), message.data, size)


@contextmanager
def _told(source: PubSub) -> Iterator[None]:
    """What the service answers, as an error of the platform. DeadlineExceeded and ResourceExhausted go through."""
    from google.api_core import exceptions as answers

    try:
        yield
    except answers.NotFound as error:
        raise Refused(
            f"subscription {source.subscription} is not there",
            data="nothing was read. A subscription gets what is published after it was made; what came before it "
            "is not "
            "delivered",
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
            data="what was landed before is in the inbox; what is not acknowledged comes again",
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
