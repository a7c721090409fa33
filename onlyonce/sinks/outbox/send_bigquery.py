"""Send rows of the outbox to BigQuery: by streaming inserts, or as whole units by the Storage Write API.

For the Storage Write API rows become Arrow batches. A row is a line of JSON, and Arrow's own reader makes columns of
many lines at once, by the types of the table. A name that the table lacks, or a value of another kind, is an error, and
is never left out.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import requests
from pyarrow import json as arrow_json
from urllib3.exceptions import NewConnectionError

from onlyonce import environment
from onlyonce.api.declaration import declared_at
from onlyonce.api.pipeline import BigQuery, BigQueryStream
from onlyonce.core.delivery import IN_OUTBOX, Answer, Guarantee, Room, Row, Unsent, asked_pause, of_each, told
from onlyonce.core.errors import OnlyonceError, Refused, Retryable
from onlyonce.failpoints import passing
from onlyonce.unexpected import not_installed

TYPES = {
    "STRING": pa.string(),
    "JSON": pa.string(),
    "GEOGRAPHY": pa.string(),
    "INT64": pa.int64(),
    "DOUBLE": pa.float64(),
    "BOOL": pa.bool_(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "DATETIME": pa.timestamp("us"),
    "DATE": pa.date32(),
    "NUMERIC": pa.decimal128(38, 9),
    "BIGNUMERIC": pa.decimal256(76, 38),
}
REQUEST_BYTES = 5_000_000
"""A request may have 10 MB; an Arrow batch is about as large as its JSON."""


def schema_of(fields: Iterable[Any], table: str) -> pa.Schema:
    """Return the columns of a table as Arrow's, by its schema in BigQuery. Raise Refused for an unsupported type."""
    return pa.schema([pa.field(field.name, _type(field, field.name, table, inside=False)) for field in fields])


def _type(field: Any, path: str, table: str, *, inside: bool) -> pa.DataType:
    kind = field.type_.name
    if kind == "STRUCT":
        found: Any = pa.struct([(f.name, _type(f, f"{path}.{f.name}", table, inside=True)) for f in field.fields])
    else:
        found = TYPES.get(kind)
    if found is None or (kind == "DATE" and (inside or field.mode.name == "REPEATED")):
        raise Refused(
            f"column {path} of {table} is {kind}, which does not travel from JSON to a write stream",
            data="nothing was sent; the rows wait in the outbox",
            hint="make it a STRING of the table, or send by insert ids: BigQuery(…)",
        )
    return pa.list_(found) if field.mode.name == "REPEATED" else found


def requests_of_rows(rows: Iterable[Row], schema: pa.Schema, unit: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows in order, in batches of at most REQUEST_BYTES of JSON, or of one row.

    Raise Refused if they don't fit.
    """
    lines: list[str] = []
    size = 0
    for row in rows:
        length = len(row.payload.encode())
        if lines and size + length > REQUEST_BYTES:
            yield _batch(lines, schema, unit)
            lines, size = [], 0
        lines.append(row.payload)
        size += length
    if lines:
        yield _batch(lines, schema, unit)


def _batch(lines: list[str], schema: pa.Schema, unit: str) -> pa.RecordBatch:
    # Arrow's JSON reader does not know dates: they are read as strings.
    read = pa.schema([pa.field(f.name, pa.string() if pa.types.is_date(f.type) else f.type) for f in schema])
    options = arrow_json.ParseOptions(explicit_schema=read, unexpected_field_behavior="error")
    text = "\n".join(lines).encode()
    try:
        table = arrow_json.read_json(
            io.BytesIO(text), arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1), options
        )
        columns = [
            pc.cast(table.column(f.name), f.type) if pa.types.is_date(f.type) else table.column(f.name) for f in schema
        ]
    except pa.ArrowInvalid as error:
        raise Refused(
            f"unit {unit}: the table can't hold its rows: {' '.join(str(error).split())}",
            data="nothing of this unit is in the table; it waits in the outbox, and all after it",
            hint="add the column to the table, or give it the type of the rows (NaN and bytes do not travel); "
            "then: onlyonce deliver",
        ) from error
    [batch] = pa.Table.from_arrays(columns, schema=schema).combine_chunks().to_batches()
    return batch


# Streaming inserts: up to 500 rows are one `insertAll`, each with the insert id that was stored with the row.
#
# The server drops a row whose insert id it has just seen, at best effort and for about a minute. The client's own
# retries are off. Each attempt is noted in the log before it is made, so that the log knows of lost answers.


ROWS = 500
"""Google advises this; the API's limit is 50,000."""
ROW_BYTES = 9_000_000
"""A request may have 10 MB, and the client's form of a row is longer than the row."""
OVERHEAD = 100
TOO_BUSY = {"rateLimitExceeded", "quotaExceeded", "stopped"}
LOST_INSIDE = {"backendError", "internalError", "timeout"}


class BigQuerySender:
    """Sends rows to one table."""

    ordered = False
    ahead = 10_000

    def __init__(self, sink: BigQuery, client: Any) -> None:
        self._sink, self._client = sink, client
        self.under_way = sink.at_once
        self.room = Room(ROWS, REQUEST_BYTES)

    def size(self, row: Row) -> int:
        """Return the size, as the client writes characters outside ASCII: \\uXXXX."""
        return len(row.payload.encode("ascii", "backslashreplace")) + OVERHEAD

    def send(self, rows: Sequence[Row]) -> list[Answer]:
        """Send one `insertAll`. Rows that the server rejects don't keep others out. Raise Unsent."""
        if self.size(rows[0]) > ROW_BYTES:
            return [Answer("invalid", f"the row has more than the {ROW_BYTES} bytes that fit into a request")]
        from google.api_core.exceptions import GoogleAPICallError
        from google.auth.exceptions import GoogleAuthError, TransportError

        try:
            rejected = self._client.insert_rows_json(
                self._sink.table,
                [row_of(row.payload) for row in rows],
                row_ids=[row.insert_id for row in rows],
                skip_invalid_rows=True,
                retry=None,
                timeout=self._sink.timeout.total_seconds(),
            )
        except GoogleAPICallError as error:
            return of_each(_of_request(error), len(rows))
        except TransportError as error:
            raise Unsent(told(f"no access token: {error}")) from error
        except GoogleAuthError as error:
            return [Answer("not now", told(str(error)), held="wrong")] * len(rows)
        except requests.RequestException as error:
            if _no_connection(error):
                raise Unsent(told(str(error))) from error
            return [Answer("unknown", told(f"no answer: {error}"))] * len(rows)
        except ValueError as error:  # an answer that was cut off
            return [Answer("unknown", told(f"no answer: {error}"))] * len(rows)
        by_row = {entry["index"]: entry["errors"] for entry in rejected}
        return [_of_row(by_row.get(number)) for number in range(len(rows))]


def row_of(payload: str) -> Any:
    """Return a row as the client takes it.

    A number that a float would change is a string, which BigQuery reads as a number.
    """
    return json.loads(payload, parse_float=_number, parse_int=_whole)


def _whole(written: str) -> int | str:
    number = int(written)
    return number if abs(number) < 1 << 53 else written


def _number(written: str) -> float | str:
    nearest = float(written)
    return nearest if Decimal(repr(nearest)) == Decimal(written) else written


@contextmanager
def opened_inserts(sink: BigQuery) -> Iterator[BigQuerySender]:
    """Open a sender with its client, by Google's default credentials; without any for an emulator. Raise Refused."""
    try:
        from google.auth.credentials import AnonymousCredentials
        from google.auth.exceptions import DefaultCredentialsError
        from google.cloud import bigquery
    except ImportError as error:
        raise not_installed(sink.package, declared_at(sink), IN_OUTBOX, " where `onlyonce deliver` runs") from error
    # The emulator's variable is Google's own. Anonymous credentials are only for the emulator.
    credentials = AnonymousCredentials() if environment.variable("BIGQUERY_EMULATOR_HOST") else None  # type: ignore[no-untyped-call]
    try:
        client = bigquery.Client(project=sink.table.rsplit(".", 2)[0], credentials=credentials)
    except DefaultCredentialsError as error:
        raise Refused(
            f"no credentials for BigQuery: {told(str(error))}",
            data=IN_OUTBOX,
            hint="set GOOGLE_APPLICATION_CREDENTIALS where `onlyonce deliver` runs",
        ) from error
    try:
        yield BigQuerySender(sink, client)
    finally:
        client.close()


def _of_request(error: Any) -> Answer:
    """Return the answer to each row of a request that was refused as a whole."""
    code = int(error.code or 0)
    reasons = {str(detail.get("reason")) for detail in error.errors or [] if isinstance(detail, dict)}
    headers = getattr(error.response, "headers", None) or {}
    pause = asked_pause(headers.get("Retry-After", ""), datetime.now(UTC))
    text = told(f"{code} {', '.join(sorted(reasons))} {error.message}")
    if code in (408, 429) or reasons & TOO_BUSY:
        return Answer("not now", text, pause)
    if code in (401, 403, 404):
        return Answer("not now", text, held="wrong")
    return Answer("no", text) if 400 <= code < 500 else Answer("unknown", text, pause)


def _of_row(errors: Sequence[dict[str, Any]] | None) -> Answer:
    if not errors:
        return Answer("delivered", "200")
    reasons = {str(error.get("reason")) for error in errors}
    text = told("; ".join(f"{e.get('reason')}: {e.get('message')} {e.get('location') or ''}".strip() for e in errors))
    if reasons & LOST_INSIDE:
        return Answer("unknown", text)
    return Answer("not now", text) if reasons <= TOO_BUSY else Answer("invalid", text)


def _no_connection(error: requests.RequestException) -> bool:
    """Return whether the request was never sent, because no connection was made."""
    cause = error.args[0] if error.args else None
    refused = isinstance(error, requests.ConnectTimeout | requests.exceptions.ProxyError)
    return refused or isinstance(getattr(cause, "reason", None), NewConnectionError)


# BigQuery by the Storage Write API: each unit is one pending stream, whose rows have offsets and become visible
# together.
#
# A unit has one stream for as long as it waits, and the outbox has its name before a row is sent. So after a lost
# answer or a killed process the next deliverer continues in the same stream. The server refuses rows at an offset that
# it has already (ALREADY_EXISTS). A committed stream stays committed (STREAM_ALREADY_COMMITTED). Two deliverers that
# write at the same time write the same rows at the same offsets. A stream is committed only if the server, when it ends
# the stream, counts as many rows in it as the unit has. The order of the rows in the table is not fixed.


T = TypeVar("T")
EMULATOR = "BIGQUERY_STORAGE_EMULATOR_HOST"
"""host:port of an emulator, which is reached without TLS and without credentials."""
WAITS = {"data": "nothing of this unit is in the table; it waits in the outbox, and all after it"}


class Streams(Protocol):
    """Where the name of a unit's stream is kept."""

    def find(self, unit: str) -> str | None:
        """Return the stream that a unit was sent to, or is being sent to.

        Raise Refused for a unit that was sent in another way.
        """

    def note(self, unit: str, stream: str) -> None:
        """Store the name before the first row is sent. Raise Superseded."""


class BigQueryStreamTarget:
    """Writes units to one table."""

    guarantee: ClassVar[Guarantee] = "exactly_once"

    def __init__(self, sink: BigQueryStream, client: Any, streams: Streams) -> None:
        self._client, self._streams, self._timeout = client, streams, sink.timeout.total_seconds()
        project, dataset, table = sink.table.rsplit(".", 2)
        self._table, self._parent = sink.table, f"projects/{project}/datasets/{dataset}/tables/{table}"

    def committed(self, unit: str) -> bool:
        """Return whether the server says that the unit's stream is committed.

        A stream of another table, which was declared before, is asked for too. If that table was removed, the rows that
        it may have had are gone with it, so the unit is in no table. Raise Refused if only the stream is gone.
        """
        name = self._streams.find(unit)
        if name is None:
            return False
        if self._is_here(name):
            return bool(self._ask(lambda: self._look(name), unit).commit_time)
        table = name.rpartition("/streams/")[0]
        if (found := self._ask(lambda: self._look(name), unit, done=_is_missing)) is not None:
            return bool(found.commit_time)
        # Each table has this stream for as long as it is there.
        if self._ask(lambda: self._look(f"{table}/streams/_default"), unit, done=_is_missing) is None:
            return False
        raise Refused(
            f"unit {unit}: BigQuery does not find its write stream {name}, which is not of {self._table}",
            data="whether its rows are in the other table can't be asked any more; nothing was sent now",
            hint="look for its rows in the other table (onlyonce.outbox has them). Once that table is removed, the "
            "unit goes to the declared one whole: onlyonce deliver",
        )

    def write(self, unit: str, rows: Iterator[Row]) -> None:
        """Send all rows at their offsets, end the stream, and commit it.

        Raise Refused for a table, an account or rows that can't work, and for a stream that the server has forgotten.
        Raise Unsent if a request was refused for now, and Retryable if its answer was lost.
        """
        name = self._streams.find(unit)
        if name is None or not self._is_here(name):
            name = self._new(unit)
        number = self._append(unit, name, rows)
        passing("bigquery-after-rows")
        counted = self._ask(lambda: self._client.finalize_write_stream(name=name, **self._once), unit).row_count
        passing("bigquery-after-end")
        if counted != number:
            # Requests of another size overlap requests of an earlier attempt. No deliverer commits this stream, since
            # each compares the count.
            self._new(unit)
            raise Unsent(
                f"unit {unit}: its stream has {counted} rows of {number}",
                hint="nothing to do: it is sent again, in another stream; onlyonce deliver",
                **WAITS,
            )
        self._commit(unit, name)

    def close(self) -> None:
        """Close the connection."""
        self._client.transport.close()

    @property
    def _once(self) -> dict[str, Any]:
        """Options without the client's own retries: a lost answer is known to be lost."""
        return {"retry": None, "timeout": self._timeout}

    def _is_here(self, name: str) -> bool:
        """Return whether a stream is of the declared table."""
        return name.startswith(f"{self._parent}/streams/")

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
        """Send the unit's rows, and return their number.

        The server refuses rows that the stream already has.
        """
        found = self._ask(lambda: self._look(name), unit)
        schema = schema_of(found.table_schema.fields, self._table)
        offset = 0
        for batch in requests_of_rows(rows, schema, unit):
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
            lambda: next(iter(self._client.append_rows(iter([request]), **self._once))), unit, done=_takes_no_more
        )
        passing("bigquery-after-append")
        if answer is not None and answer.row_errors:
            first = answer.row_errors[0]
            raise Refused(
                f"unit {unit}: {self._table} rejects row {offset + first.index}: {told(first.message)}",
                hint="make the function's rows fit the table, or change the table; then: onlyonce deliver", **WAITS,
            )  # fmt: skip
        if answer is not None and answer.error.code and not _takes_no_more(answer.error.code, str(answer.error)):
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
                f"unit {unit}: the server names no commit time", data="its rows wait", hint="onlyonce deliver"
            )

    def _ask(
        self, request: Callable[[], T], unit: str, done: Callable[[int, str], bool] = lambda _code, _text: False
    ) -> Any:
        """Send one request. Return None if it fails with a code and message for which `done` is true."""
        from google.api_core.exceptions import GoogleAPICallError
        from google.auth.exceptions import GoogleAuthError

        try:
            return request()
        except GoogleAPICallError as error:
            code = error.grpc_status_code.value[0] if error.grpc_status_code else 0
            if done(code, str(error)):
                return None
            raise self._meant(code, str(error), unit) from error
        except GoogleAuthError as error:
            raise Unsent(
                told(f"no access token: {error}"), hint="look at the account; then: onlyonce deliver", **WAITS
            ) from error

    def _meant(self, code: int, text: str, unit: str) -> OnlyonceError:
        """Return what an error of the server means for the unit."""
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
            f"unit {unit}: BigQuery has not said whether it was done: {told(text)}",
            data="its rows wait in the outbox; the next attempt asks BigQuery for the unit's stream",
            hint="onlyonce deliver",
        )


NOT_FOUND, ALREADY_EXISTS, EXHAUSTED = 5, 6, 8
FINALIZED = re.compile("STREAM_FINALIZED|(has been|already) finalized")
WRONG = {3, 7, 9, 11, 12, 16}
"""INVALID_ARGUMENT, PERMISSION_DENIED, FAILED_PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED, UNAUTHENTICATED."""


def _takes_no_more(code: int, text: str) -> bool:
    """Return whether the server says that it has rows at this offset, or that the stream was finalized.

    Google does not say which of the two comes first. A finalized stream may lack these rows: then its count, for which
    it is asked next, differs from the unit's.
    """
    return code == ALREADY_EXISTS or FINALIZED.search(text) is not None


def _is_missing(code: int, _text: str) -> bool:
    return code == NOT_FOUND


@contextmanager
def opened_stream(sink: BigQueryStream, streams: Streams) -> Iterator[BigQueryStreamTarget]:
    """Open a target with its client, by Google's default credentials; without any for an emulator. Raise Refused."""
    try:
        import grpc
        from google.auth.exceptions import DefaultCredentialsError
        from google.cloud.bigquery_storage_v1 import BigQueryWriteClient
        from google.cloud.bigquery_storage_v1.services.big_query_write.transports import BigQueryWriteGrpcTransport
    except ImportError as error:
        raise not_installed(sink.package, declared_at(sink), IN_OUTBOX, " where `onlyonce deliver` runs") from error
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
            data=IN_OUTBOX,
            hint="set GOOGLE_APPLICATION_CREDENTIALS where `onlyonce deliver` runs",
        ) from error
    target = BigQueryStreamTarget(sink, client, streams)
    try:
        yield target
    finally:
        target.close()
