"""Google's own fake of Pub/Sub, and a pipeline that pulls from it. Built once by Go, into the user's cache."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support import go_programs
from tests.support.needed import missing
from tests.support.platform import ROOT

SOURCE = ROOT / "tests" / "pubsub_fake"
PROJECT = "projects/test"
TOPIC = f"{PROJECT}/topics/sales"
WHY = "the tests of Pub/Sub run against Google's own fake, which is Go, by Google's own client"


def binary() -> Path:
    """The fake, built if its sources are new. Skips without Go."""
    try:
        import google.cloud.pubsub_v1  # noqa: F401
    except ImportError:
        missing(f"the package google-cloud-pubsub is not installed: {WHY}")
    return go_programs.built(SOURCE, WHY)


class Fake:
    """A running fake. Its acknowledgement ids are the message ids, and nobody else's clock is touched."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        # The plain clients: the one in google.cloud publishes in the background.
        from google.pubsub_v1 import PublisherClient, SubscriberClient

        self._process = process
        assert process.stdout is not None
        self.address = process.stdout.readline().strip()
        os.environ["PUBSUB_EMULATOR_HOST"] = self.address
        self.publisher = PublisherClient()
        self.subscriber = SubscriberClient()

    def tell(self, order: str) -> None:
        """Give an order (see main.go), and wait until it is carried out."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "ok\n"

    def subscribe(self, name: str, topic: str = TOPIC, **options: Any) -> str:
        """Make a subscription, and its topic if it is not there."""
        from google.api_core.exceptions import AlreadyExists

        with suppress(AlreadyExists):
            self.publisher.create_topic(name=topic)
        made = self.subscriber.create_subscription(
            request={"name": f"{PROJECT}/subscriptions/{name}", "topic": topic, "ack_deadline_seconds": 60, **options}
        )
        return str(made.name)

    def publish(self, *payloads: object, topic: str = TOPIC, **attributes: str) -> list[str]:
        """Publish each payload (bytes, or what becomes JSON) with the same attributes; gives the message ids."""
        messages = [
            {"data": one if isinstance(one, bytes) else json.dumps(one).encode(), "attributes": attributes}
            for one in payloads
        ]
        found: list[str] = []
        for start in range(0, len(messages), 1000):
            found += self.publisher.publish(topic=topic, messages=messages[start : start + 1000]).message_ids
        return found

    def waiting(self, subscription: str) -> Counter[str]:
        """The messages that the subscription would deliver once all deadlines have passed; they stay there."""
        self.tell("advance 61s")
        found: Counter[str] = Counter()
        while True:
            answer = self.subscriber.pull(subscription=subscription, max_messages=1000)
            if not answer.received_messages:
                break
            found += Counter(one.message.message_id for one in answer.received_messages)
        self.tell("advance 61s")
        return found


@contextmanager
def running(patch: pytest.MonkeyPatch) -> Iterator[Fake]:
    """A fake of its own, which ends with the block. The clients of this process find it."""
    with subprocess.Popen(
        [str(binary())], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        patch.setenv("PUBSUB_EMULATOR_HOST", "")
        fake = Fake(process)
        try:
            yield fake
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(30)


def pulled(inbox: Path) -> list[str]:
    """The lines of all pulled files, in the order of their names."""
    files = sorted(path for path in inbox.glob("*.jsonl") if not path.name.startswith("."))
    return [line for path in files for line in path.read_text().splitlines()]
