"""The interface of a target that takes whole units (Kafka, BigQuery's streams, and the user's own sinks:
docs/how-to/own-sink.md), and the choice of a sink's target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from typing import Any, Protocol, cast

from onlyonce.declare.pipeline import BigQueryStream, CustomSink, KafkaSink
from onlyonce.declare.resolve import named
from onlyonce.model.errors import OnlyonceError, Refused
from onlyonce.model.sinks.delivery import Guarantee, Row, Unsent
from onlyonce.sinks.outbox import bigquery_stream, kafka


class Target(Protocol):
    """Takes the rows of one unit after the other. `guarantee` is what it promises, and the conformance suite tests."""

    guarantee: Guarantee

    def committed(self, unit: str) -> bool:
        """Whether the unit is there, whole. Asked before each write. At least once it may always say no."""

    def write(self, unit: str, rows: Iterator[Row]) -> None:
        """Write the rows of a unit.

        Exactly once: rows and the unit's name become visible as one, and a unit that is there stays as it is, also when
        two processes write it at once. Raises what went wrong."""

    def close(self) -> None:
        """Let go of connections. Nothing is written after it."""


def target_of(
    sink: KafkaSink | CustomSink | BigQueryStream, deliverer: str, streams: bigquery_stream.Streams
) -> AbstractContextManager[Target]:
    """The target of a sink, open inside, for a deliverer of this name.

    `streams`: where the name of a unit's stream is kept. Raises Refused.
    """
    if isinstance(sink, BigQueryStream):
        return cast("AbstractContextManager[Target]", bigquery_stream.opened(sink, streams))
    if isinstance(sink, KafkaSink):
        return kafka.opened(sink, deliverer)
    return cast("AbstractContextManager[Target]", closing(_own(sink)))


def _own(sink: CustomSink) -> Any:
    kind = named(
        sink.target_class, f"CustomSink: {sink.target_class}",
        data="nothing was written; its rows wait in the outbox",
        hint="write 'module:Class' of what `onlyonce deliver` can import; see docs/how-to/own-sink.md",
    )  # fmt: skip
    missing = [part for part in ("guarantee", "committed", "write", "close") if not hasattr(kind, part)]
    if missing or kind.guarantee not in ("exactly_once", "at_least_once"):
        raise Refused(
            f"CustomSink: {sink.target_class} lacks {', '.join(missing) or 'a guarantee that is known'}",
            data="nothing was written; its rows wait in the outbox",
            hint="the contract is in docs/how-to/own-sink.md",
        )
    try:
        return kind(sink.where)
    except OnlyonceError:
        raise
    except Exception as error:
        raise Unsent(
            f"{sink.target_class} could not be opened: {type(error).__name__}: {error}",
            data="nothing was written; its rows wait in the outbox",
            hint="look at the cause, then: onlyonce deliver",
        ) from error
