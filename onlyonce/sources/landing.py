"""Turns a Pub/Sub message into a line of a landed file, and decides how many messages the next pull may ask for. Pure.

If the payload is a JSON object, the line is that object with the record's id added, and receive parses it like a line
of any file. Any other payload becomes a line that is not JSON and has the whole message, so receive makes it `invalid`.
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
    """What a pull gives of one message. `ack_id` is of this delivery, `message_id` of the message."""

    ack_id: str
    message_id: str
    attributes: Mapping[str, str]
    data: bytes
    size: int


def line(message: Message, source: PubSub) -> str:
    """The line of a landed file for one message, without its end. No errors, whatever the payload is.

    The id is added last. A field of its name is taken out of the payload, so a payload can't give itself another id.
    Without the attribute (or with an empty one) it is null, so the record is invalid.
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
    """The payload as one line of text without the field of the id, if it is a JSON object.

    What else is wrong with it, receive finds.
    """
    try:
        text = data.decode("utf-8-sig")
        found = conversions.parsed(text)
        if isinstance(found, dict) and id_column in found:
            del found[id_column]
            text = conversions.text(found).encode().decode()  # half of a surrogate pair is no character
    except (ValueError, RecursionError):
        return None
    # An end of line is white space here: inside a text it would have been refused.
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
    """How much a pull may ask for: so many messages that `max_bytes` hold them, by the largest that came last.

    A pull can't be told a number of bytes. So it asks for few at first, as if all were of the largest size, and at most
    for twice as many each time. Sizes that jump may still make an answer too large: the client throws it away unread
    (`overflowed`), the messages come again, and are then taken as if all were of the largest size.
    """

    max_messages: int
    max_bytes: int
    want: int
    overflows: int = 0

    @classmethod
    def of(cls, source: PubSub) -> Flow:
        """How a landing begins."""
        return cls(source.max_messages, source.max_bytes, min(source.max_messages, _safe(source.max_bytes)))

    def after(self, sizes: Sequence[int]) -> Flow:
        """After an answer with messages of these sizes."""
        if not sizes or self.overflows:
            return self
        fitting = max(1, self.max_bytes // (2 * max(sizes)))
        return replace(self, want=max(1, min(2 * self.want, fitting, self.max_messages)))

    def overflowed(self) -> Flow:
        """After an answer that was too large."""
        return replace(self, want=min(self.max_messages, _safe(self.max_bytes)), overflows=self.overflows + 1)


def _safe(max_bytes: int) -> int:
    # Beside the largest payload an answer has attributes and framing.
    return max(1, max_bytes // (LARGEST_MESSAGE + LARGEST_MESSAGE // 4))
