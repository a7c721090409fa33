"""Turn a Pub/Sub message into a line of a pulled file, and decide how many messages the next pull requests. Pure.

If the payload is a JSON object, the line is that object with the record's id added. Receive parses it like a line of
any file. Any other payload becomes a line that is not JSON and has the whole message, so receive makes it `invalid`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from onlyonce.api.sources import LARGEST_MESSAGE, PubSub
from onlyonce.core import conversions
from onlyonce.core.line_values import WHOLE_MESSAGE


@dataclass(frozen=True)
class Message:
    """One message of a pull's answer. `ack_id` identifies this delivery, `message_id` the message."""

    ack_id: str
    message_id: str
    attributes: Mapping[str, str]
    data: bytes
    size: int


def line(message: Message, source: PubSub) -> str:
    """Return the line of a pulled file for one message, without its end. Any payload has one.

    The id is added last. A field with its name is removed from the payload, so a payload can't set its own id. If the
    attribute is missing or empty, the id is null, so the record is invalid.
    """
    text = _object(message.data, source.id_column)
    if text is None:
        return WHOLE_MESSAGE + _json(_whole(message))
    attribute = source.record_id_attribute
    value = message.attributes.get(attribute) or None if attribute else message.message_id
    rest = text[:-1].rstrip()
    comma = "" if rest == "{" else ","
    return f"{rest}{comma}{_json(source.id_column)}:{_json(value)}}}"


def _object(data: bytes, id_column: str) -> str | None:
    """Return the payload as one line without the field of the id, if it is a JSON object; else None.

    Receive finds all other faults of the payload.
    """
    try:
        text = data.decode("utf-8-sig")
        found = conversions.parsed(text)
        if isinstance(found, dict) and id_column in found:
            del found[id_column]
            text = conversions.text(found).encode().decode()  # half of a surrogate pair is not a character
    except (ValueError, RecursionError):
        return None
    # A line feed is white space here: within a string it would have been refused.
    return text.replace("\n", " ").replace("\r", " ").strip() if isinstance(found, dict) else None


def _whole(message: Message) -> dict[str, object]:
    said: dict[str, object] = {"message_id": message.message_id, "attributes": dict(message.attributes)}
    try:
        return said | {"data": message.data.decode()}
    except UnicodeDecodeError:
        return said | {"base64": base64.b64encode(message.data).decode()}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class Flow:
    """How many messages a pull may request, so that `max_bytes` hold them, by the largest of the last answer.

    A pull can't be limited to a number of bytes. So the first pull requests few messages, as if all had the largest
    size, and each later one at most twice as many. If sizes jump, an answer may still be too large. Then the client
    drops it unread (`overflowed`) and the messages come again, and are requested as if all had the largest size.
    """

    max_messages: int
    max_bytes: int
    want: int
    overflows: int = 0

    @classmethod
    def of(cls, source: PubSub) -> Flow:
        """Return the flow at the beginning of a pull run."""
        return cls(source.max_messages, source.max_bytes, min(source.max_messages, _safe(source.max_bytes)))

    def after(self, sizes: Sequence[int]) -> Flow:
        """Return the flow after an answer with messages of these sizes."""
        if not sizes or self.overflows:
            return self
        fitting = max(1, self.max_bytes // (2 * max(sizes)))
        return replace(self, want=max(1, min(2 * self.want, fitting, self.max_messages)))

    def overflowed(self) -> Flow:
        """Return the flow after an answer that was too large."""
        return replace(self, want=min(self.max_messages, _safe(self.max_bytes)), overflows=self.overflows + 1)


def _safe(max_bytes: int) -> int:
    # An answer also has attributes and framing, so it is larger than its payloads.
    return max(1, max_bytes // (LARGEST_MESSAGE + LARGEST_MESSAGE // 4))
