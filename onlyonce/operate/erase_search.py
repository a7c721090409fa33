"""Search everything that the platform stores for what mentions a condition, and remove or rewrite what an erasure
leaves.

The search decodes each format, in a pipeline's files, tables and logs, and in databases. `forget` searches before
anything is erased and at the end; the receipt names each place that is found then.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from sqlalchemy import Connection

from onlyonce import settings
from onlyonce.api import pipeline as api_pipeline
from onlyonce.api.pipeline import Output, Pipeline
from onlyonce.commitlog import erasures
from onlyonce.commitlog.erasures import Erasures
from onlyonce.commitlog.incarnations import Incarnations
from onlyonce.core import line_values, records, stored_names
from onlyonce.core.erasure import ESCAPES, Left, Mentions, encoded
from onlyonce.core.errors import Retryable
from onlyonce.core.locations import Location
from onlyonce.database.connect import Database, Session, run
from onlyonce.engine import temporary
from onlyonce.failpoints import passing
from onlyonce.lookups import copies
from onlyonce.operate import erase_rows
from onlyonce.run import reset
from onlyonce.sinks import targets
from onlyonce.sinks.base.stored import File, Rows, below, file_at
from onlyonce.sinks.postgres import sink_postgres
from onlyonce.sources import file_bytes
from onlyonce.tables import checkpoint, statistics, stores
from onlyonce.tables.checkpoint import NotDecoded

STILL_SEEN = re.compile(r"\A.*\n\D*[1-9]")
"""Matches the notice of VACUUM (FULL, VERBOSE) about a table whose dead row versions an older transaction still sees.

Their number is the first one after the notice's first line. The words are in the language of the server's
`lc_messages`, which only a superuser may change.
"""
GO = {
    "alerts": "the alert deletes them once their cause has gone",
    "long_runs": "the next continuous run of the pipeline replaces them",
    "looks": "the next onlyonce doctor replaces them",
    "rejected": "an onlyonce backfill of their windows replaces them, and keep_events removes them",
}
"""When rows that quote a record are removed from a table of the platform, by the table's name."""
STAY = "keep_log cuts the log of batches, and onlyonce drop deletes all rows of a pipeline"
STATEMENTS_GO = "a superuser removes it by pg_stat_statements_reset()"


def found_stored(database: Database, pipeline: Pipeline, mentions: Mentions) -> Iterator[Rows]:
    """Yield each table of the platform with rows that mention the condition, or with statistics that do."""
    collected = f"onlyonce gc deletes them after {settings.keep_units_days()} days (ONLYONCE_KEEP_UNITS_DAYS)"
    goes = GO | {"driver_runs": collected, "outbox": f"once they are delivered, {collected}"}
    for schema in erasures.OWN_SCHEMAS:
        for name in Erasures(database).tables(schema):
            table = (schema, name)
            if count := run(database, lambda conn: sink_postgres.counted(conn, table, mentions, pipeline.name)):  # noqa: B023
                yield Rows(f"table {'.'.join(table)}", count, goes.get(name, STAY))
            if count := run(database, lambda conn: sink_postgres.in_statistics(conn, table, mentions)):  # noqa: B023
                yield Rows(f"pg_stats of {'.'.join(table)}", count, sink_postgres.STATISTICS_GO)
    if count := sum(map(mentions.in_string, Erasures(database).statements())):
        yield Rows("pg_stat_statements", count, STATEMENTS_GO)


def rewrite_stored(database: Database) -> None:
    """Rewrite the platform's tables from which an erasure deletes rows, into new files.

    PostgreSQL leaves deleted rows on the pages of a table and of its indexes; VACUUM FULL makes new files without them.
    Columns with values of records have no statistics, so only the tables are rewritten. Raise Retryable while an
    older transaction sees the rows.
    """
    session = Session(database)  # in autocommit mode: VACUUM can't run inside a transaction block
    try:
        session.ask(_rewritten)
    finally:
        session.close()


def _rewritten(connection: Connection) -> None:
    notices: list[str] = connection.connection.driver_connection.notices  # type: ignore[union-attr]
    notices.clear()
    Erasures(connection).rewrite()
    if any(STILL_SEEN.match(notice) for notice in notices):
        raise Retryable(
            "an older transaction still sees rows that were deleted from the commit log",
            data="the rows are deleted, and their bytes are on the tables' pages until it ends",
            hint="let that transaction end (a backup, or a session that is idle in a transaction); then run the "
            "same command again",
        )


# The decoders: how each format is known, and what counts as a part that mentions a condition.
#
# - Parquet, known by `PAR1`: a part is a row. Smallest and largest values in its footer are values of rows.
# - Avro, known by `Obj\x01`: a part is a record.
# - Spark's state (changelog, delta, snapshot), known by `LZ4Block` or Zstandard: a part is the decompressed file.
# - a snapshot of RocksDB, known as zip: a part is a file in it.
# - a table of RocksDB, known by its footer: a part is an entry.
# - gzip, bzip2, Zstandard, known by their first bytes: a part is what is in it, decoded again.
# - Delta's log, JSON, CSV, logs and any other text (UTF-8, UTF-16, Latin-1): a part is a line, or a record of CSV, with
#   JSON's, CSV's and a URL's escapes undone.
# - anything else: a part is the bytes.
#
# A part is compared by one of `Mentions`' methods, which all need all values of the condition: `in_row` by columns;
# `in_string` a string in all its spellings; `in_line` a line in all encodings; `in_bytes` raw bytes; `in_file` bytes of
# an unknown format, only if a value is so long that it is not there by chance.


LZ4_BLOCK = b"LZ4Block"
"""The first bytes of each block that lz4-java's LZ4BlockOutputStream writes."""
LZ4_HEADER = 21
"""The bytes of a block's header: 8 of `LZ4Block`, 1 of method and level, 4 and 4 of its sizes, 4 of the checksum."""
LZ4_STORED = 0x10
DAMAGE = (ValueError, IndexError, EOFError, OSError, zlib.error, zipfile.BadZipFile, pa.ArrowException, OverflowError)
Decoder = Callable[[bytes, Mentions], int]


def count_mentions(content: bytes, mentions: Mentions) -> int:
    """Return how many parts mention the condition.

    Raise NotDecoded for a format that no decoder reads, and for damage.
    """
    form, decoder = next(
        ((form, decoder) for begins, form, decoder in FORMATS if content.startswith(begins)), ("", None)
    )
    if decoder is None and checkpoint.is_state_table(content):
        form, decoder = "table of RocksDB", _state_table
    decoder = decoder or _text
    try:
        return decoder(content, mentions)
    except DAMAGE:
        found = _text(content, mentions) or _opaque(content, mentions)
        if form and not found and not line_values.is_utf8(content):
            raise NotDecoded(f"damaged {form}") from None
        return found


def _parquet(content: bytes, mentions: Mentions) -> int:
    parts = parquet.ParquetFile(pa.BufferReader(content)).iter_batches()
    return sum(mentions.in_row(row) for part in parts for row in _possible(part, mentions).to_pylist())


def _possible(part: pa.RecordBatch, mentions: Mentions) -> pa.RecordBatch:
    """Return the rows with a string column that may contain the longest value.

    Arrow drops most rows, without Python.
    """
    if not (value := mentions.longest_string):
        return part
    either = pa.repeat(pa.scalar(False), part.num_rows)
    for column in part.columns:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            for sought in (value, *ESCAPES):
                either = pc.or_(either, pc.fill_null(pc.match_substring(column, sought), False))
            for bytes_of in encoded(value):
                either = pc.or_(
                    either, pc.fill_null(pc.match_substring(column, bytes_of.hex(), ignore_case=True), False)
                )
        elif not (pa.types.is_primitive(column.type) or pa.types.is_decimal(column.type)):
            return part
    return part.filter(either)


def _avro(content: bytes, mentions: Mentions) -> int:
    try:
        import fastavro
    except ImportError:
        raise NotDecoded("Avro, without fastavro") from None
    return sum(
        mentions.in_row(one if isinstance(one, dict) else {"": one}) for one in fastavro.reader(io.BytesIO(content))
    )


def _lz4_blocks(content: bytes, mentions: Mentions) -> int:
    found, at = bytearray(), 0
    while content[at : at + len(LZ4_BLOCK)] == LZ4_BLOCK:
        token = content[at + 8]
        stored, size = (int.from_bytes(content[at + begin : at + begin + 4], "little") for begin in (9, 13))
        at += LZ4_HEADER
        block = content[at : at + stored]
        found += block if token & 0xF0 == LZ4_STORED or not size else bytes(pa.Codec("lz4_raw").decompress(block, size))
        at += stored
    return count_mentions(bytes(found), mentions) or int(mentions.in_bytes(bytes(found)))


def _zip(content: bytes, mentions: Mentions) -> int:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return sum(count_mentions(archive.read(name), mentions) for name in archive.namelist())


def _state_table(content: bytes, mentions: Mentions) -> int:
    # A key and its value are one row of the state: some values may be in the key, the others in the value.
    return sum(mentions.in_bytes(key + b"\0" + value) for key, value in checkpoint.state_entries(content)) or _opaque(
        content, mentions
    )


def _zstandard(content: bytes, mentions: Mentions) -> int:
    with pa.CompressedInputStream(pa.BufferReader(content), "zstd") as stream:
        return count_mentions(stream.read(), mentions)


def _text(content: bytes, mentions: Mentions) -> int:
    string = content
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        with suppress(UnicodeDecodeError):
            string = content.decode("utf-16").encode()
    is_text = line_values.is_utf8(string)
    if is_text and b"\0" in string:
        return _opaque(content, mentions)
    # Other files are split by the rule of CSV: without quotes, a record is a line.
    found = max(_in_records(string, mentions, one, is_text=is_text) for one in _delimiters(string))
    return found if is_text else found or _opaque(content, mentions)


def _delimiters(content: bytes) -> list[str]:
    """Return what may separate the values if a file is CSV: a comma, and each delimiter that is next to a quote."""
    return [
        one
        for one in line_values.DELIMITERS
        if one == "," or f'{one}"'.encode() in content or f'"{one}'.encode() in content
    ]


def _in_records(content: bytes, mentions: Mentions, delimiter: str, *, is_text: bool) -> int:
    each = (one for _, one in file_bytes.count_records(io.BytesIO(content), records.DEFAULT, delimiter))
    if is_text and not mentions.encodings:
        return sum(mentions.in_string(one.decode()) for one in each)
    return sum(map(mentions.in_line, each))


def _opaque(content: bytes, mentions: Mentions) -> int:
    return int(mentions.in_file(content))


def _bzip2(content: bytes) -> bytes:
    # `bz2.decompress` leaves out a damaged later stream without an error.
    return file_bytes.Bzip2(io.BytesIO(content)).read() or b""


def _unread(name: str) -> Decoder:
    def decoder(content: bytes, mentions: Mentions) -> int:
        raise NotDecoded(name)

    return decoder


FORMATS: tuple[tuple[bytes, str, Decoder], ...] = (
    (b"PAR1", "Parquet", _parquet),
    (b"Obj\x01", "Avro", _avro),
    (LZ4_BLOCK, "LZ4", _lz4_blocks),
    (b"PK\x03\x04", "zip", _zip),
    (b"\x28\xb5\x2f\xfd", "Zstandard", _zstandard),
    (b"\x1f\x8b", "gzip", lambda content, mentions: count_mentions(gzip.decompress(content), mentions)),
    (b"BZh", "bzip2", lambda content, mentions: count_mentions(_bzip2(content), mentions)),
    (b"\x04\x22\x4d\x18", "", _unread("an LZ4 frame")),
    (b"\x82SNAPPY\0", "", _unread("Snappy")),
    (b"ZV\x01", "", _unread("LZF")),
    (b"ORC", "", _unread("ORC")),
)


# The search. It changes nothing.


NOT_ALL = ("postgres", "data", "files", "inbox", "tables")
"""Folders of the home that other pipelines share. `found_stored` reads what the embedded server has."""
NO_RUN = "delete it: no later run needs it"
NEXT_DRIVER = "the next driver that starts deletes it once its own driver has ended"
TEMPORARY = "onlyonce gc deletes it once it is older than ONLYONCE_KEEP_TEMPORARIES_HOURS"
COPY = "delete the row in the table that is looked up: onlyonce gc deletes its copies once no batch asks for them"
NOT_OURS = "this input is not ours to change: delete it"
NAME = (
    "a name is not ours to change, since the log of batches knows the file by it: rename or delete the file or folder"
)
STATE_STAYS = (
    "the live state of a Stateful output. A new incarnation would write its rows to the output's target again, so it "
    "stays for as long as the processor keeps the key. Declare the output under another name with a target of its own, "
    "run it, then delete this folder"
)
OURS = {
    "checkpoints": "Spark deletes it once 100 later batches of this output have ended",
    "events": "the records are of other persons, or are in files of an attempt that may still be committed, which "
    "onlyonce gc deletes",
}
"""Why values stay in a folder of a pipeline's data, or when a file there is removed."""


@dataclass(frozen=True)
class Place:
    """Something that mentions the condition, or may: `unread` names a format that is not decoded.

    `goes`: when it is removed.
    """

    at: str
    parts: int
    goes: str
    unread: str | None = None

    def left(self) -> Left:
        """Return the line of the receipt: the place, how many parts, and when they are removed."""
        return Left(
            self.at,
            f"{self.unread}, which is not decoded" if self.unread else f"{self.parts} part(s) with these values",
            self.goes,
        )


def search_everything(
    database: Database, pipeline: Pipeline, mentions: Mentions, left_out: Collection[str] = ()
) -> list[Place]:
    """Return each file, object and table with parts that mention the condition, and each file and folder whose name
    does. The targets of outputs that are `left_out` are not asked."""
    stored = [
        (targets.stored_of(database, pipeline, output), erase_rows.window_goes(pipeline, output))
        for output in pipeline.outputs
        if output.name not in left_out
    ]
    stored += [
        (targets.stored_of_lookup(database, lookup), None) for output in pipeline.outputs for lookup in output.lookups
    ]
    results = (replace(file, goes=goes or file.goes) for one, goes in stored for file in one.files())
    files = {file.at: file for file in (*_files(pipeline), *results)}
    in_tables = (replace(rows, goes=goes or rows.goes) for one, goes in stored for rows in one.rows(mentions))
    rows = chain(found_stored(database, pipeline, mentions), in_tables)
    places = [
        *(place for file in files.values() if (place := search_file(file, mentions))),
        *(Place(one.at, one.count, one.goes) for one in rows),
    ]
    return sorted([*places, *_names(files, mentions)], key=lambda one: one.at)


def _names(files: Iterable[str], mentions: Mentions) -> Iterator[Place]:
    """Yield each file and folder whose own name mentions the condition, with the number of files in it."""
    own, known, counted = f"{settings.home()}/", dict[str, bool](), Counter[str]()
    for at in files:
        for path in accumulate(at.split("/"), "{}/{}".format):
            name = path.rpartition("/")[2]
            if name not in known:
                known[name] = mentions.in_string(name)
            if known[name] and not own.startswith(f"{path}/"):
                counted[path] += 1
    yield from (Place(f"the name of {path}", count, NAME) for path, count in counted.items())


def search_file(file: File, mentions: Mentions) -> Place | None:
    """Return what a file mentions; None if it mentions nothing or no longer exists."""
    try:
        parts = count_mentions(file.read(), mentions)
    except FileNotFoundError:
        return None
    except NotDecoded as error:
        return Place(file.at, 0, file.goes, str(error))
    return Place(file.at, parts, file.goes) if parts else None


def search_own(pipeline: Pipeline) -> list[Location]:
    """Return the folders and prefixes below which only this pipeline's runs write."""
    return [settings.data_location(pipeline.name), settings.blocks_dir(pipeline.name)]


def _files(pipeline: Pipeline) -> Iterator[File]:
    """Yield the files of the platform, of input and of logs that may have a pipeline's records, and those that killed
    writers left."""
    for root in (*search_own(pipeline), *api_pipeline.folders(pipeline)):
        for at in stores.of(root).unfinished(root):
            # What is not a file has no content to read (`bytes()` is empty): only its name is searched.
            yield file_at(at, TEMPORARY) if Path(str(at)).is_file() else File(str(at), bytes, NAME)
    home = settings.home()
    for name in stores.of(home).names(home):
        if name not in NOT_ALL:
            yield from below(home / name, NEXT_DRIVER if name == "tmp" else NO_RUN)
    data = settings.data_location(pipeline.name)
    ends = {f"{data}/{folder}/": goes for folder, goes in OURS.items()}
    for output in pipeline.roots():
        if output.stateful and not reset.is_start_possible(output):
            # First, since the first match counts, and `OURS` has the folder of all checkpoints.
            ends = {f"{_checkpoints(pipeline, output)}/": STATE_STAYS} | ends
    for file in below(data, TEMPORARY):
        yield replace(file, goes=next((goes for folder, goes in ends.items() if file.at.startswith(folder)), TEMPORARY))
    yield from below(settings.blocks_dir(pipeline.name), TEMPORARY)
    yield from below(copies.home_of_copies(), COPY)
    for inbox in api_pipeline.folders(pipeline):
        yield from (_no_link(file) if isinstance(inbox, Path) else file for file in below(inbox, NOT_OURS))
    archive = settings.archive()
    if archive is not None:
        yield from below(archive / pipeline.name, NO_RUN)


def _no_link(file: File) -> File:
    """Return a file of an inbox that is read without following a link: its producer may be another user."""

    def read() -> bytes:
        try:
            with os.fdopen(file_bytes.opened_file(file.at), "rb") as opened:
                return opened.read()
        except file_bytes.NoFile as error:
            raise FileNotFoundError(error.errno, error.strerror, file.at) from error

    return replace(file, read=read)


# Removal of what mentions erased records and no later run needs: state, old versions of tables, statistics, temporary
# files, lines of logs.
#
# - Spark's state of an output: a new incarnation begins, which reads `events` without the records; checkpoints of
#   closed incarnations are deleted.
# - Delta tables of outputs, and `events`: VACUUM removes all old versions of outputs at once; smallest and largest
#   values are removed from the log.
# - temporaries of a FileSink (`.pending`): deleted, unless an attempt may still commit them.
# - files of killed writers (`.partial`): deleted.
# - logs in the home: the line is overwritten with spaces.
# - folders of drivers that have ended, kept samples: deleted.
#
# Each step searches for what is left of it, so it may be killed and run again.


LOGS = ("logs", "airflow")
"""Folders of the home with logs: ours, and the logs of the Airflow that we start."""
SAMPLES = stored_names.CHECKS_FOLDER


def refuse_leftovers(database: Database, pipeline: Pipeline, mentions: Mentions) -> None:
    """Raise Refused, with the date, if an output needs a new incarnation and `events` no longer reaches back to its
    start."""
    for output in _renewed(database, pipeline, mentions):
        # Without `yes` it only checks.
        reset.new(f"{pipeline.name}/{output.name}", start=_start(output))


def remove_leftovers(
    database: Database, pipeline: Pipeline, mentions: Mentions, left_out: Collection[str] = ()
) -> None:
    """Remove everything that the section above lists, but nothing in the targets of outputs that are `left_out`."""
    for output in _renewed(database, pipeline, mentions):
        reset.new(f"{pipeline.name}/{output.name}", yes=True, start=_start(output))
    passing("forget-after-state")
    _closed_checkpoints(database, pipeline, mentions)
    for output in pipeline.outputs:
        if output.name in left_out:
            continue
        targets.stored_of(database, pipeline, output).clean(
            mentions, lambda file: search_file(file, mentions) is not None
        )
    statistics.remove_statistics(
        settings.data_location(pipeline.name) / stored_names.EVENTS_FOLDER, lambda at: _mentions(at, mentions)
    )
    for root in search_own(pipeline):
        for at in stores.of(root).unfinished(root):
            if isinstance(at, Path) and at.is_file() and _mentions(at, mentions):
                at.unlink()
    temporary.sweep()
    for at in _mentioned(settings.home() / SAMPLES, mentions):
        stores.of(at).delete(at)
    for folder in LOGS:
        for at in _mentioned(settings.home() / folder, mentions):
            if isinstance(at, Path):
                _blank_lines(at, mentions)


def _renewed(database: Database, pipeline: Pipeline, mentions: Mentions) -> Iterator[Output]:
    """Yield the outputs whose live incarnation has state with the records.

    The state of a join stays, since a new incarnation would write its rows twice.
    """
    for root in pipeline.roots():
        live = Incarnations(database).live(pipeline.name, root.name)
        if live is None:
            continue
        if not reset.is_start_possible(root):
            continue
        state = _checkpoints(pipeline, root) / str(live.ordinal) / "state"
        if any(True for _ in _mentioned(state, mentions)):
            yield root


def _start(output: Output) -> dict[str, int] | None:
    """Return where a new incarnation starts: an aggregate without windows needs the whole table."""
    return {"version": 0} if output.window is None and output.stateful is None else None


def _closed_checkpoints(database: Database, pipeline: Pipeline, mentions: Mentions) -> None:
    for root in pipeline.roots():
        live = Incarnations(database).live(pipeline.name, root.name)
        folder = _checkpoints(pipeline, root)
        for name in [*stores.of(folder).names(folder)]:
            closed = live is None or name != str(live.ordinal)
            if closed and any(True for _ in _mentioned(folder / name, mentions)):
                stores.of(folder).clear(folder / name)


def _checkpoints(pipeline: Pipeline, root: Output) -> Location:
    return settings.data_location(pipeline.name) / stored_names.CHECKPOINTS_FOLDER / root.name


def _blank_lines(log: Path, mentions: Mentions) -> None:
    """Overwrite the lines that mention the condition with spaces.

    A program may append to the file meanwhile, so the bytes before its end keep their positions.
    """
    with log.open("r+b") as file:
        at = 0
        for line in file.read().splitlines(keepends=True):
            kept = line.rstrip(b"\r\n")
            if mentions.in_string(kept.decode("utf-8", "replace")):
                file.seek(at)
                file.write(b" " * len(kept))
            at += len(line)


def _mentioned(folder: Location, mentions: Mentions) -> Iterator[Location]:
    for entry in [*stores.of(folder).entries(folder)]:
        if _mentions(entry.at, mentions):
            yield entry.at


def _mentions(at: Location, mentions: Mentions) -> bool:
    return search_file(file_at(at, NO_RUN), mentions) is not None
