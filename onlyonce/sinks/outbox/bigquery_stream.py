"""BigQuery by the Storage Write API: each unit is one pending stream, whose rows have offsets and become visible as
one.

A unit has one stream for as long as it waits, and the outbox has its name before a row is sent. So whoever comes after
a lost answer or a killed process goes on in the same stream: rows at an offset that the server has already are refused
there (ALREADY_EXISTS), a stream that is committed is committed (STREAM_ALREADY_COMMITTED), and two that write at once
write the same rows at the same offsets. A stream is committed only if the server, when it ends the stream, counts as
many rows in it as the unit has.

Who calls it: `onlyonce.sinks.outbox.target`. Errors: Refused for a table, an account or rows that can't work, and for a
stream that the server has forgotten; Unsent where a request was refused for now; Retryable where its answer was lost.
Not promised: an order of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol, TypeVar

import pyarrow as pa

from onlyonce import environment
from onlyonce.declare.pipeline import BigQueryStream
from onlyonce.failpoints import passing
from onlyonce.model.errors import OnlyonceError, Refused, Retryable
from onlyonce.model.sinks.delivery import Guarantee, Row, Unsent, told
from onlyonce.sinks.outbox import bigquery_rows

T = TypeVar("T")
EMULATOR = "BIGQUERY_STORAGE_EMULATOR_HOST"
"""host:port of an emulator, spoken to without TLS and without credentials."""
WAITS = {"data": "nothing of this unit is in the table; it waits in the outbox, and all after it"}


class Streams(Protocol):
    """Where the name of a unit's stream is kept."""

    def find(self, unit: str) -> str | None:
        """The stream that a unit was sent to, or is being sent to.

        Raises Refused for a unit that was sent in another way.
        """

    def note(self, unit: str, stream: str) -> None:
        """Keep it, before the first row is sent. Raises Superseded."""


class BigQueryStreamTarget:
    """Writes units to one table."""

    guarantee: ClassVar[Guarantee] = "exactly_once"

    def __init__(self, sink: BigQueryStream, client: Any, streams: Streams) -> None:
        self._client, self._streams, self._timeout = client, streams, sink.timeout.total_seconds()
        project, dataset, table = sink.table.rsplit(".", 2)
        self._table, self._parent = sink.table, f"projects/{project}/datasets/{dataset}/tables/{table}"

    def committed(self, unit: str) -> bool:
        """Whether the unit's stream is committed: the server says so."""
        name = self._streams.find(unit)
        return name is not None and bool(self._ask(lambda: self._look(name), unit).commit_time)

    def write(self, unit: str, rows: Iterator[Row]) -> None:
        """All rows at their offsets, then the end of the stream, then its commit."""
        name = self._streams.find(unit) or self._new(unit)
        number = self._append(unit, name, rows)
        passing("bigquery-after-rows")
        counted = self._ask(lambda: self._client.finalize_write_stream(name=name, **self._once), unit).row_count
        passing("bigquery-after-end")
        if counted != number:
            # Requests of another size have met those of an earlier attempt. Nobody commits this stream, since everybody
            # counts.
            self._new(unit)
            raise Unsent(
                f"unit {unit}: its stream has {counted} rows of {number}",
                hint="nothing to do: it is sent anew, in another stream; onlyonce deliver",
                **WAITS,
            )
        self._commit(unit, name)

    def close(self) -> None:
        """Close the connection."""
        self._client.transport.close()

    @property
    def _once(self) -> dict[str, Any]:
        """The client's own retries are off: an answer that was lost is known to be lost."""
        return {"retry": None, "timeout": self._timeout}

    def _new(self, unit: str) -> str:
        from google.cloud.bigquery_storage_v1 import types

        pending = types.WriteStream(type_=types.WriteStream.Type.PENDING)
        made = self._ask(
            lambda: self._client.create_write_stream(parent=self._parent, write_stream=pending, **self._once), unit
        )
        passing("bigquery-after-stream")
        self._streams.note(unit, made.name)
        passing("bigquery-after-note")
        return str(made.name)

    def _look(self, name: str) -> Any:
        from google.cloud.bigquery_storage_v1 import types

        asked = types.GetWriteStreamRequest(name=name, view=types.WriteStreamView.FULL)
        return self._client.get_write_stream(request=asked, **self._once)

    def _append(self, unit: str, name: str, rows: Iterator[Row]) -> int:
        """Give the number of the unit's rows.

        Those that the stream has already are not sent into it again: the server refuses them.
        """
        found = self._ask(lambda: self._look(name), unit)
        schema = bigquery_rows.schema_of(found.table_schema.fields, self._table)
        offset = 0
        for batch in bigquery_rows.requests(rows, schema, unit):
            self._append_one(unit, name, offset, schema, batch)
            offset += batch.num_rows
        return offset

    def _append_one(self, unit: str, name: str, offset: int, schema: pa.Schema, batch: pa.RecordBatch) -> None:
        from google.cloud.bigquery_storage_v1 import types

        arrow = types.AppendRowsRequest.ArrowData(
            writer_schema=types.ArrowSchema(serialized_schema=schema.serialize().to_pybytes()),
            rows=types.ArrowRecordBatch(serialized_record_batch=batch.serialize().to_pybytes()),
        )
        request = types.AppendRowsRequest(write_stream=name, offset=offset, arrow_rows=arrow)
        answer = self._ask(
            lambda: next(iter(self._client.append_rows(iter([request]), **self._once))), unit, there=_HAS_IT
        )
        passing("bigquery-after-append")
        if answer is not None and answer.row_errors:
            first = answer.row_errors[0]
            raise Refused(
                f"unit {unit}: {self._table} rejects row {offset + first.index}: {told(first.message)}",
                hint="make the function's rows fit the table, or change the table; then: onlyonce deliver", **WAITS,
            )  # fmt: skip
        if answer is not None and answer.error.code and not _stored(answer.error):
            raise self._meant(answer.error.code, answer.error.message, unit)

    def _commit(self, unit: str, name: str) -> None:
        from google.cloud.bigquery_storage_v1 import types

        asked = types.BatchCommitWriteStreamsRequest(parent=self._parent, write_streams=[name])
        answer = self._ask(lambda: self._client.batch_commit_write_streams(request=asked, **self._once), unit)
        codes = types.StorageError.StorageErrorCode
        wrong = [error for error in answer.stream_errors if error.code != codes.STREAM_ALREADY_COMMITTED]
        if wrong:
            raise Refused(
                f"unit {unit}: its stream can't be committed: {codes(wrong[0].code).name} "
                f"{told(wrong[0].error_message)}",
                hint="look at the cause; then: onlyonce deliver",
                **WAITS,
            )
        if not answer.commit_time and not answer.stream_errors:
            raise Retryable(
                f"unit {unit}: nobody said when its stream was committed", data="its rows wait", hint="onlyonce deliver"
            )

    def _ask(self, request: Callable[[], T], unit: str, there: frozenset[str] = frozenset()) -> Any:
        """One request. None where the server says that what was asked is done already."""
        from google.api_core.exceptions import GoogleAPICallError
        from google.auth.exceptions import GoogleAuthError

        try:
            return request()
        except GoogleAPICallError as error:
            name = error.grpc_status_code.name if error.grpc_status_code else ""
            if name in there:
                return None
            raise self._meant(
                error.grpc_status_code.value[0] if error.grpc_status_code else 0, str(error), unit
            ) from error
        except GoogleAuthError as error:
            raise Unsent(
                told(f"no access token: {error}"), hint="look at the account; then: onlyonce deliver", **WAITS
            ) from error

    def _meant(self, code: int, text: str, unit: str) -> OnlyonceError:
        """What an error of the server means for the unit."""
        if code == NOT_FOUND:
            return Refused(
                f"unit {unit}: BigQuery does not find {self._table}, or the stream of the unit: {told(text)}",
                data="whether its rows are in the table can't be asked any more, if it had a stream: see "
                "onlyonce.outbox, stream",
                hint="make the table, or name another one: what waits then goes there whole. If only the stream "
                "is gone, look for the rows first",
            )
        if code == EXHAUSTED:
            return Unsent(
                f"unit {unit}: BigQuery takes nothing for now: {told(text)}", hint="onlyonce deliver, later", **WAITS
            )
        if code in WRONG:
            return Refused(
                f"unit {unit}: BigQuery does not take it: {told(text)}",
                hint="correct the table, the account's rights or the function's rows; then: onlyonce deliver", **WAITS,
            )  # fmt: skip
        return Retryable(
            f"unit {unit}: no answer of BigQuery that tells whether it was done: {told(text)}",
            data="its rows wait in the outbox; at the next attempt the server is asked for its stream",
            hint="onlyonce deliver",
        )


NOT_FOUND, ALREADY_EXISTS, EXHAUSTED = 5, 6, 8
_HAS_IT = frozenset({"ALREADY_EXISTS"})
WRONG = {3, 7, 9, 11, 12, 16}
"""INVALID_ARGUMENT, PERMISSION_DENIED, FAILED_PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED, UNAUTHENTICATED."""


def _stored(error: Any) -> bool:
    """Whether an answer in the stream says that the server has these rows."""
    return bool(error.code == ALREADY_EXISTS)


@contextmanager
def opened(sink: BigQueryStream, streams: Streams) -> Iterator[BigQueryStreamTarget]:
    """A target with its client, by Google's default credentials; none for an emulator. Raises Refused."""
    try:
        import grpc
        from google.auth.exceptions import DefaultCredentialsError
        from google.cloud.bigquery_storage_v1 import BigQueryWriteClient
        from google.cloud.bigquery_storage_v1.services.big_query_write.transports import BigQueryWriteGrpcTransport
    except ImportError as error:
        raise Refused(
            "the package google-cloud-bigquery-storage is not installed",
            data="nothing was sent; its rows wait in the outbox",
            hint="install onlyonce-pipelines[bigquery] where `onlyonce deliver` runs",
        ) from error
    emulator = environment.variable(EMULATOR)
    try:
        client = (
            BigQueryWriteClient(transport=BigQueryWriteGrpcTransport(channel=grpc.insecure_channel(emulator)))
            if emulator
            else BigQueryWriteClient()
        )
    except DefaultCredentialsError as error:
        raise Refused(
            f"no credentials for BigQuery: {told(str(error))}",
            data="nothing was sent; its rows wait in the outbox",
            hint="set GOOGLE_APPLICATION_CREDENTIALS where `onlyonce deliver` runs",
        ) from error
    target = BigQueryStreamTarget(sink, client, streams)
    try:
        yield target
    finally:
        target.close()
