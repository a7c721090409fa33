"""The sources that a pipeline can declare. Pure data, checked when made."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Literal

from onlyonce.declare.declaration import check_one_of, declaration
from onlyonce.declare.sources.kafka import Kafka as Kafka
from onlyonce.declare.sources.ranges import Custom, Growing
from onlyonce.declare.sources.starts import EARLIEST, check_start
from onlyonce.declare.sources.tables import DeltaSource
from onlyonce.model import record_size
from onlyonce.model.errors import Refused
from onlyonce.model.storage.folders import check_inbox
from onlyonce.model.storage.location import is_url, location

FORMATS = ("json", "csv", "parquet", "avro")
IN_COLUMNS = ("parquet", "avro", "columns")
"""The formats whose records come in columns and not in lines."""
SUBSCRIPTION = re.compile(r"projects/([^/\s]+)/subscriptions/([^/\s]+)")
MESSAGE_ID = "message_id"
"""The column of a message's own id."""
LARGEST_MESSAGE = 10 * 1024 * 1024
"""Pub/Sub takes none that is larger."""


@declaration
class Files:
    """An inbox of files, a record a line or row. A file is complete when it appears: write it elsewhere, then rename.

    Names that end in .gz, .bz2 or .zst are packed files. One that is cut short or damaged is `invalid` as a file:
    nothing of it is read.

    inbox               the folder; by default <home>/inbox/<pipeline>. Names that begin with a dot are left alone. Or a
                        prefix of an object store, s3://bucket/prefix: the objects directly below it
                        (docs/how-to/object-store.md)
    recursive           read the files in folders below the inbox too (dt=2026-03-01/part-0.jsonl), at any depth. Names
                        that begin with a dot or an underscore are left alone. False: such a folder is skipped, and each
                        run and the doctor report it
    max_files_a_batch   how many files one batch takes; with their sorted names it fixes the cut into batches
    format              'json': an object on each line. 'csv': the declared columns in order, separated by commas; a
                        text with a comma, quote or line feed in double quotes, a quote doubled; nothing between commas
                        is null. 'parquet', 'avro': columns by name. A column whose type does not fit the declared one,
                        or none for the record id or the event time: the file is `invalid` as a file, as is one cut
                        short or damaged
    header              csv: the first line of each file has the names of the declared columns; a file with other names
                        there is `invalid` as a file
    start               'earliest': all that is there. 'latest', or a time with its zone: a file that was there at the
                        first run, or was last changed before that time, is not read. Decided once, by the first run
    max_record_bytes    a larger record is `invalid`, with its place, its size and how it begins. csv: an open quote is
                        closed within it
    links               whether a symbolic link is followed. Whoever may write to the inbox can then have any file read
                        that the driver's user may read. Else a link is `invalid` as a file, as are pipes, sockets and
                        device files
    """

    inbox: str | None = None
    max_files_a_batch: int = 1000
    format: Literal["json", "csv", "parquet", "avro"] = "json"
    header: bool = False
    start: Literal["earliest", "latest"] | datetime = EARLIEST
    max_record_bytes: int = record_size.DEFAULT
    links: bool = False
    recursive: bool = False

    def __post_init__(self) -> None:
        check_one_of("Files", "format", self.format, FORMATS)
        if self.header and self.format != "csv":
            raise Refused(
                f"Files: header=True with format={self.format!r}", hint="JSON lines name their fields themselves"
            )
        check_start("Files", self.start)
        _check_files(self)

    def check(self, pipeline: str, record_id: tuple[str, ...], columns: list[str]) -> None:
        """Refuse declared columns (in DDL) that this format can't hold. Any of them may be the record id."""
        nested = [column.strip() for column in columns if "<" in column]
        if nested and self.format == "csv":
            raise Refused(f"pipeline {pipeline}: CSV has no nested columns: {nested[0]}", hint="declare it as a string")

    def layout(self) -> str:
        """How a file is cut into records and columns, in text."""
        return f"{self.format} with a header" if self.header else self.format


@declaration
class PubSub:
    """A Pub/Sub subscription, of this pipeline alone. Its messages are landed as files in an inbox, then acknowledged.

    subscription          'projects/P/subscriptions/S'. It must be there: what was published before it is not delivered
    record_id_attribute   the attribute that identifies a record, for publishers that may send one twice (each time
                          under a new message id); None: the message id
    inbox                 where messages are landed; by default <home>/inbox/<pipeline>
    max_files_a_batch     how many landed files (each the answer to one pull) one batch takes
    max_messages          how many messages one pull asks for at most; Pub/Sub gives 1000 at most
    max_bytes             how large the answer to a pull may be; a landing takes about five times as much memory
    drained_after         a landing ends when no message has come for so long
    land_for              it ends after so long in any case; the next one goes on
    max_record_bytes      a larger record is `invalid`, with its place, its size and how it begins
    """

    subscription: str
    record_id_attribute: str | None = None
    inbox: str | None = None
    max_files_a_batch: int = 1000
    max_messages: int = 1000
    max_bytes: int = 64 * 1024 * 1024
    drained_after: timedelta = timedelta(seconds=5)
    land_for: timedelta = timedelta(minutes=5)
    max_record_bytes: int = record_size.DEFAULT

    def __post_init__(self) -> None:
        _check_files(self)
        if not SUBSCRIPTION.fullmatch(self.subscription):
            raise Refused(
                f"PubSub: subscription {self.subscription!r}",
                hint="its whole name: projects/PROJECT/subscriptions/NAME",
            )
        if self.record_id_attribute == "":
            raise Refused("PubSub: record_id_attribute is empty", hint="leave it out: then the message id is the id")
        if not 1 <= self.max_messages <= 1000:
            raise Refused(f"PubSub: max_messages is {self.max_messages}", hint="from 1 to 1000, which is the default")
        if self.max_bytes < 2 * LARGEST_MESSAGE:
            raise Refused(
                f"PubSub: max_bytes is {self.max_bytes}, but one message may have {LARGEST_MESSAGE}",
                hint=f"at least {2 * LARGEST_MESSAGE}, so that any message can be landed",
            )
        if self.drained_after <= timedelta(0) or self.land_for <= timedelta(0):
            raise Refused("PubSub: drained_after and land_for must be longer than zero", hint="leave them out")

    @property
    def format(self) -> Literal["json"]:
        """What is landed is JSON lines."""
        return "json"

    @property
    def links(self) -> Literal[False]:
        """No link is landed."""
        return False

    @property
    def start(self) -> Literal["earliest"]:
        """All that is landed is read; what is landed begins with the subscription."""
        return EARLIEST

    @property
    def header(self) -> bool:
        """They have none."""
        return False

    def layout(self) -> str:
        """How a landed file is cut into records and columns, in text."""
        return self.format

    @property
    def id_column(self) -> str:
        """The declared column that a landed message has its id in."""
        return self.record_id_attribute or MESSAGE_ID

    def check(self, pipeline: str, record_id: tuple[str, ...], columns: list[str]) -> None:
        """Let a pipeline pass whose record id is the message's. Raises Refused."""
        typed = {part.split()[0].strip("`"): part.split()[1].lower() for part in columns}
        if record_id != (self.id_column,) or typed[self.id_column] != "string":
            raise Refused(
                f"pipeline {pipeline}: the record id of its messages is {self.id_column!r}, as PubSub declares it",
                hint=f"record_id=({self.id_column!r},), and `{self.id_column}` string in the schema; "
                "record_id_attribute "
                "names another",
            )

    def create_command(self) -> str:
        """How a person makes the subscription."""
        found = SUBSCRIPTION.fullmatch(self.subscription)
        assert found is not None
        return (
            f"gcloud pubsub subscriptions create {found[2]} --project={found[1]} --topic=TOPIC --ack-deadline=60 "
            "--message-retention-duration=7d --expiration-period=never"
        )


WithInbox = Files | PubSub | Growing | Custom | DeltaSource
"""The sources whose registry lists files, or ranges of what is no topic."""
Source = WithInbox | Kafka


def _check_files(source: WithInbox) -> None:
    if isinstance(source, Files) and source.inbox is not None and is_url(source.inbox):
        _check_prefix(source, source.inbox)
    else:
        check_inbox(type(source).__name__, source.inbox)
    record_size.check_record_size(type(source).__name__, source.max_record_bytes)
    if source.max_files_a_batch < 1:
        raise Refused(f"{type(source).__name__}: max_files_a_batch must be at least 1", hint="1000 is the default")


def _check_prefix(source: Files, inbox: str) -> None:
    location(inbox, "Files: inbox")
    if source.links:
        raise Refused(f"Files: links=True of {inbox}", hint="an object store has no links: leave it out")
