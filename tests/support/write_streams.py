"""BigQuery's Storage Write API as a gRPC server on this machine: pending streams with offsets, that refuses what the
real one refuses.

What goes wrong is told by `script(number, request)`, by the request's name: the answer is lost before or after its
effect, or the connection is.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Self
from uuid import uuid4

import grpc
import pyarrow as pa
from google.cloud.bigquery_storage_v1 import types

SERVICE = "google.cloud.bigquery.storage.v1.BigQueryWrite"
Fault = Literal["", "lost before", "lost after", "too busy", "twice"]
Script = Callable[[int, str], Fault]
Codes = types.StorageError.StorageErrorCode
TYPES = {
    "id": "STRING",
    "shop": "STRING",
    "n": "INT64",
    "at": "TIMESTAMP",
    "day": "DATE",
    "amount": "NUMERIC",
    "text": "STRING",
}


@dataclass
class Stream:
    """A pending stream: its rows, and how far it has come."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    ended: bool = False
    committed: datetime | None = None


@dataclass
class WriteStreams:
    """The server. What it holds outlives a restart."""

    script: Script = lambda _number, _name: ""
    columns: dict[str, str] = field(default_factory=lambda: dict(TYPES))
    tables: set[str] = field(default_factory=lambda: {"t"})
    streams: dict[str, Stream] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    port: int = 0
    rejects: Callable[[dict[str, Any]], bool] = lambda _row: False
    finalized_first: bool = False  # an append asks whether the stream was finalized before it asks for the offset

    def __enter__(self) -> Self:
        self._server = grpc.server(ThreadPoolExecutor(8))
        unary = {
            "CreateWriteStream": (self._create, types.CreateWriteStreamRequest, types.WriteStream),
            "GetWriteStream": (self._get, types.GetWriteStreamRequest, types.WriteStream),
            "FinalizeWriteStream": (self._finalize, types.FinalizeWriteStreamRequest, types.FinalizeWriteStreamResponse),
            "BatchCommitWriteStreams": (
                self._commit, types.BatchCommitWriteStreamsRequest, types.BatchCommitWriteStreamsResponse),
        }  # fmt: skip
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                lambda request, context, name=name, work=work: self._faulty(
                    name, context, lambda: work(request, context)
                ),  # type: ignore[misc]
                request_deserializer=asked.deserialize,
                response_serializer=answer.serialize,
            )
            for name, (work, asked, answer) in unary.items()
        }
        handlers["AppendRows"] = grpc.stream_stream_rpc_method_handler(
            self._append, request_deserializer=types.AppendRowsRequest.deserialize,
            response_serializer=types.AppendRowsResponse.serialize,
        )  # fmt: skip
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()

    @property
    def address(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    def rows(self, table: str = "t") -> list[dict[str, Any]]:
        """What a reader of the table sees."""
        mine = [stream for name, stream in self.streams.items() if f"/tables/{table}/" in name]
        return [row for stream in mine if stream.committed for row in stream.rows]

    def ids(self, table: str = "t") -> Counter[str]:
        """The ids of its rows."""
        return Counter(row["id"] for row in self.rows(table))

    def _faulty(self, name: str, context: Any, work: Callable[[], Any]) -> Any:
        fault = self.script(len(self.requests), name)
        self.requests.append(name)
        if fault == "too busy":
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "quota")
        if fault == "lost before":
            context.abort(grpc.StatusCode.UNAVAILABLE, "lost before")
        if fault == "twice":  # a proxy has sent it again
            work()
        done = work()
        if fault == "lost after":
            context.abort(grpc.StatusCode.UNAVAILABLE, "lost after")
        return done

    def _stream(self, name: str, context: Any) -> Stream:
        parent, _, stream = name.rpartition("/streams/")
        table = parent.rpartition("/")[2]
        if table in self.tables and stream == "_default":
            return Stream()
        if table not in self.tables or name not in self.streams:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Requested entity was not found: {name}")
        return self.streams[name]

    def _create(self, request: Any, context: Any) -> Any:
        if request.parent.split("/")[-1] not in self.tables:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Requested entity was not found: {request.parent}")
        assert request.write_stream.type_ == types.WriteStream.Type.PENDING
        name = f"{request.parent}/streams/{uuid4().hex}"
        self.streams[name] = Stream()
        return types.WriteStream(name=name, type_=types.WriteStream.Type.PENDING)

    def _get(self, request: Any, context: Any) -> Any:
        stream = self._stream(request.name, context)
        fields = [
            types.TableFieldSchema(name=name, type_=kind, mode=types.TableFieldSchema.Mode.NULLABLE)
            for name, kind in self.columns.items()
        ]
        return types.WriteStream(
            name=request.name, type_=types.WriteStream.Type.PENDING, commit_time=stream.committed,
            table_schema=types.TableSchema(fields=fields),
        )  # fmt: skip

    def _finalize(self, request: Any, context: Any) -> Any:
        stream = self._stream(request.name, context)
        stream.ended = True
        return types.FinalizeWriteStreamResponse(row_count=len(stream.rows))

    def _commit(self, request: Any, context: Any) -> Any:
        [name] = request.write_streams
        if not name.startswith(f"{request.parent}/streams/"):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{name} is not a stream of {request.parent}")
        stream = self._stream(name, context)
        wrong = (
            Codes.STREAM_ALREADY_COMMITTED if stream.committed else None if stream.ended else Codes.INVALID_STREAM_STATE
        )
        if wrong:
            return types.BatchCommitWriteStreamsResponse(stream_errors=[types.StorageError(code=wrong, entity=name)])
        stream.committed = datetime.now(UTC)
        return types.BatchCommitWriteStreamsResponse(commit_time=stream.committed)

    def _append(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        for request in requests:
            yield self._faulty("AppendRows", context, lambda request=request: self._take(request, context))  # type: ignore[misc]

    def _take(self, request: Any, context: Any) -> Any:
        stream = self._stream(request.write_stream, context)
        schema = pa.ipc.read_schema(pa.py_buffer(request.arrow_rows.writer_schema.serialized_schema))
        brought = pa.ipc.read_record_batch(
            pa.py_buffer(request.arrow_rows.rows.serialized_record_batch), schema
        ).to_pylist()
        there, offset = len(stream.rows), int(request.offset)
        if stream.ended and self.finalized_first:
            self._refuse_finalized(context)
        if offset < there:
            # The real server tells it in either way.
            if random.random() < 0.5:
                context.abort(
                    grpc.StatusCode.ALREADY_EXISTS, f"OFFSET_ALREADY_EXISTS: expected {there}, received {offset}"
                )
            return _error(6, f"The offset is within stream, expected offset {there}, received {offset}")
        if stream.ended:
            self._refuse_finalized(context)
        if offset > there:
            context.abort(grpc.StatusCode.OUT_OF_RANGE, f"OFFSET_OUT_OF_RANGE: expected {there}, received {offset}")
        if bad := [n for n, row in enumerate(brought) if self.rejects(row)]:
            return types.AppendRowsResponse(
                row_errors=[types.RowError(index=n, message="no such shop") for n in bad],
                error={"code": 3, "message": "Errors found while processing rows"},
            )
        stream.rows += brought
        return types.AppendRowsResponse(append_result=types.AppendRowsResponse.AppendResult(offset=offset))

    def _refuse_finalized(self, context: Any) -> None:
        context.abort(
            grpc.StatusCode.INVALID_ARGUMENT, "STREAM_FINALIZED: stream has been finalized and cannot be appended"
        )


def _error(code: int, message: str) -> Any:
    return types.AppendRowsResponse(error={"code": code, "message": message})
