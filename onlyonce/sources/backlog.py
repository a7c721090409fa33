"""Ask sources how much input no committed batch has read. Without a Spark session, and whether or not a driver runs.

A source has unread input in two places: input that no run has registered, which the source itself knows, and input
that is registered in the manifest and not yet committed.

A source has `core.backlog.ANSWER_SECONDS`: after that the answer is that the source did not answer. The thread of the
request continues, and no second request to the same source begins before it ends. An answer is kept for KEPT_SECONDS.

The DAG `onlyonce_ask_sources` stores the answers in the log at intervals, `onlyonce alerts` at each call, and a driver
after its batches (`ask_and_store`). A source that does not answer gets an answer that says so. Its earlier numbers are
replaced: they are not known to be right any more.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from onlyonce import settings
from onlyonce.api import pipeline as api_pipeline
from onlyonce.api.pipeline import Custom, DeltaSource, Files, Growing, Kafka, Pipeline, PubSub
from onlyonce.api.sources import before_start
from onlyonce.commitlog.health import Views
from onlyonce.commitlog.sources import SourceAnswers
from onlyonce.core import backlog, stored_names
from onlyonce.core.backlog import Backlog
from onlyonce.core.errors import OnlyonceError, Refused
from onlyonce.core.locations import Location, Url, on_disk, stored_location
from onlyonce.core.stored_names import BATCH_NO
from onlyonce.database.connect import Database
from onlyonce.sources import (
    custom,
    delta_log,
    discovery,
    growing,
    kafka_client,
    listing,
    manifest,
    record_id,
    source_files,
    source_kafka,
)
from onlyonce.sources.discovery import Inbox, Registered
from onlyonce.sources.kafka_client import Asked
from onlyonce.sources.kafka_offsets import Known, Seen
from onlyonce.tables import opening

OF_A_CLIENT = 0.75
"""The part of ANSWER_SECONDS after which a client of a broker gives up, so that its reason is the answer."""
NO_BYTES = "a broker does not say how many bytes wait"
NO_COUNT = "Pub/Sub says only to Google's monitoring how many messages wait (num_undelivered_messages)"
NO_METHOD = "the reader has no method backlog(read): bytes and the age of the oldest record are not known"
Key = tuple[str, str | None]
"""A pipeline, and which of its several sources; None if it has one."""
Answers = dict[Key, tuple[datetime, Backlog]]
"""When each source was asked, and its answer."""


@dataclass
class _Request:
    taken_in: int | None
    asked_at: datetime
    began: float
    answer: Future[Backlog] = field(default_factory=Future)

    def is_kept(self, taken_in: int | None) -> bool:
        """Return whether this request stands for one that would begin now."""
        if not self.answer.done():
            return True
        return self.taken_in == taken_in and time.monotonic() - self.began < backlog.KEPT_SECONDS


@dataclass
class Asker:
    """Asks sources, all at once, and keeps their answers. A process has one (`ASKER`)."""

    requests: dict[Key, _Request] = field(default_factory=dict)
    readings: manifest.Readings = field(default_factory=dict)
    turn: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, pipelines: Iterable[Pipeline], taken_in: Mapping[str, int | None]) -> Answers:
        """Return the answer of each source of some pipelines, after ANSWER_SECONDS at most.

        `taken_in`: the number of the last batch that each pipeline has committed, in its manifest (`last_taken_in`).
        """
        return {key: (one.asked_at, _waited_for(one)) for key, one in self._asked(pipelines, taken_in).items()}

    def ask_each(self, pipelines: Iterable[Pipeline], taken_in: Mapping[str, int | None]) -> Iterator[Answers]:
        """Yield the answers immediately, and again each time another source has answered, for KEPT_SECONDS at most.

        Until a source answers, the yielded answer says that it has not answered. `taken_in`: as `ask` takes it.
        """
        asked = self._asked(pipelines, taken_in)
        yield _so_far(asked)
        with suppress(TimeoutError):
            for _ in as_completed([one.answer for one in asked.values()], backlog.KEPT_SECONDS):
                yield _so_far(asked)

    def _asked(self, pipelines: Iterable[Pipeline], taken_in: Mapping[str, int | None]) -> dict[Key, _Request]:
        with suppress(ImportError):  # pyarrow loads it with the first table, which may take a second of the two
            import pandas  # noqa: F401
        with self.turn:
            return {
                (view.name, view.part.name if view.part else None): self._request(view, taken_in.get(view.name))
                for pipeline in pipelines
                for view in api_pipeline.each_input(pipeline)
            }

    def _request(self, view: Pipeline, taken_in: int | None) -> _Request:
        key = (view.name, view.part.name if view.part else None)
        if (last := self.requests.get(key)) is not None and last.is_kept(taken_in):
            return last
        made = _Request(taken_in, datetime.now(UTC), time.monotonic())

        def work() -> None:
            made.answer.set_result(_answered(view, taken_in, self.readings))

        # A daemon: a process does not wait at its end for a source that does not answer.
        threading.Thread(target=work, name=f"{backlog.ASKING}{view.name}", daemon=True).start()
        self.requests[key] = made
        return made


ASKER = Asker()


def _waited_for(request: _Request) -> Backlog:
    try:
        return request.answer.result(max(0.0, request.began + backlog.ANSWER_SECONDS - time.monotonic()))
    except TimeoutError:
        return backlog.not_in_time()


def _so_far(asked: Mapping[Key, _Request]) -> Answers:
    return {
        key: (one.asked_at, one.answer.result() if one.answer.done() else backlog.not_in_time())
        for key, one in asked.items()
    }


def _answered(view: Pipeline, taken_in: int | None, readings: manifest.Readings) -> Backlog:
    try:
        return unread(view, _of_source(view, taken_in), readings)
    except OnlyonceError as error:
        return backlog.no_answer(error.what)
    except BaseException as error:  # also SystemExit of a user's class: each request ends with an answer
        # The text of an error of the user's class may repeat values of a record.
        text = "" if view.source.is_own else f": {(str(error).splitlines() or [''])[0][:200]}"
        return backlog.no_answer(f"{type(error).__name__}{text}")


def _of_source(view: Pipeline, taken_in: int | None) -> int | None:
    """Return the number of the source's own last batch that is committed, given the number of the last source batch."""
    if view.part is None or taken_in is None:
        return taken_in
    source_batches = settings.data_location(view.name) / stored_names.SOURCE_BATCHES_MANIFEST
    table = opening.table(source_batches)
    found = table.to_pyarrow_table(columns=["known"], filters=[(BATCH_NO, "=", taken_in)]).to_pylist()
    known: dict[str, int] = json.loads(found[0]["known"]) if found else {}
    return known.get(view.part.name)


def unread(view: Pipeline, taken_in: int | None, readings: manifest.Readings) -> Backlog:
    """Return what one source has and no committed batch has read. Raise what its store or server raises."""
    if isinstance(view.source, Kafka):
        return _of_topic(view, taken_in, readings, backlog.ANSWER_SECONDS * OF_A_CLIENT)
    inbox = source_files.inbox_of(view, view.name, None)
    there, registered = Registered({}, {}), Backlog()
    if opening.any_in(inbox.table):
        there = manifest.reading_of(readings, inbox.table, lambda: discovery.reading(inbox.table, view)).look()
        registered = Backlog() if view.source.is_own else _registered(inbox, taken_in)
    if isinstance(view.source, Custom):
        return _of_reader(view.source, inbox, there, taken_in)
    if isinstance(view.source, DeltaSource):
        at = _place_of_table(view.source, there)
        return backlog.together([registered, delta_log.unread_versions(view, at, there.of_table)])
    return backlog.together([registered, _in_inbox(inbox, there)])


def _registered(inbox: Inbox, taken_in: int | None) -> Backlog:
    columns = ["size", "modified_ns", "lines", "refusal"]
    if of_ranges := discovery.in_ranges(inbox.pipeline):
        columns += ["begins", "ends"]
    rows = manifest.after(inbox.table, taken_in, columns).to_pylist()
    return backlog.of_files(
        (
            (row["ends"] - row["begins"] or row["size"]) if of_ranges else row["size"],
            row["modified_ns"],
            1 if row["refusal"] else row["lines"],
        )
        for row in rows
    )


def _place_of_table(source: DeltaSource, there: Registered) -> Location:
    if source.path is not None:
        return delta_log.log_location(source)
    if there.of_table.at is None:
        raise Refused(f"only Spark's catalog knows where {source.table} is, until a run has read it")
    return stored_location(there.of_table.at)


def _in_inbox(inbox: Inbox, there: Registered) -> Backlog:
    source = inbox.pipeline.source
    if isinstance(inbox.folder, Path) and not inbox.folder.is_dir():
        if there.empty and source.makes_inbox:
            return _as_told(source, Backlog())
        raise Refused(f"the inbox of {inbox.pipeline.name}, {inbox.folder}, is not a folder")
    # Raises Refused if only a person knows whether the inbox was moved.
    named = record_id.named_inbox(inbox.pipeline.name, str(inbox.folder), there.roots, inbox.moved)
    found = _unlisted(inbox, there, named)
    if isinstance(source, Files | Growing) and discovery.undecided(inbox, there):
        found = (one for one in found if not before_start(source.start, one[1]))
    # No run has counted their records, and to count them would be to read them.
    waits = backlog.of_files((size, modified_ns, None) for size, modified_ns in found)
    return replace(_as_told(source, waits), skipped=frozenset(inbox.folders.skipped))


def _unlisted(inbox: Inbox, there: Registered, named: str) -> Iterator[tuple[int, int]]:
    source = inbox.pipeline.source
    if isinstance(inbox.folder, Url):
        for entry, _ in listing.unlisted_objects(inbox.folder, named, there.objects, inbox.folders):
            yield entry.bytes, round(entry.modified * 1_000_000_000)
    elif isinstance(source, Growing):
        yield from growing.unread(
            on_disk(inbox.folder),
            there.known,
            with_compressed=source.compressed,
            links=source.links,
            folders=inbox.folders,
        )
    else:
        known = discovery.known_marks(inbox, there)
        for one in listing.unlisted(on_disk(inbox.folder), known, source.links, inbox.folders):
            yield one.size, one.modified_ns


def _as_told(source: Any, pulled: Backlog) -> Backlog:
    """Return the answer of a subscription: its messages outside the inbox can't be counted."""
    if not isinstance(source, PubSub):
        return pulled
    return Backlog(None, None, pulled.oldest, {f"pulled_{name}": n for name, n in pulled.detail.items()}, NO_COUNT)


def _of_reader(source: Custom, inbox: Inbox, there: Registered, taken_in: int | None) -> Backlog:
    if discovery.undecided(inbox, there):
        return Backlog()  # it starts at 'latest', so all that is there now is before its start
    read = {part: one.ends for part, one in there.known.items()}
    if not there.empty:
        for row in manifest.after(inbox.table, taken_in, ["path", "begins"]).to_pylist():
            read[row["path"]] = min(read[row["path"]], row["begins"])
    reader = custom.factory(source)()
    if not hasattr(reader, "backlog"):
        records = sum(max(end - read.get(part, 0), 0) for part, end in custom.ends(source).items())
        return Backlog(records, None if records else 0, why=NO_METHOD if records else None)
    told: Mapping[str, Any] = reader.backlog(read)
    return Backlog(told.get("records"), told.get("bytes"), told.get("oldest"))


def _of_topic(view: Pipeline, taken_in: int | None, readings: manifest.Readings, patience: float) -> Backlog:
    """Return the unread messages of a topic, by offsets: transactions and compaction leave some without a message.

    Raise Refused or Retryable if the broker can't be asked or does not answer.
    """
    source = view.source
    assert isinstance(source, Kafka)
    known = source_kafka.topic_of(view, source, view.name, None, readings).read_up_to(taken_in)
    with kafka_client.asking(source, patience) as asked:
        seen = asked.seen()
        begins = _begins(source, known, seen, asked)
        waits = {part: end - begins[part] for part, end in sorted(seen.latest.items()) if end > begins[part]}
        times = asked.times({part: begins[part] for part in waits}) if waits else {}
    now = datetime.now(UTC)
    detail = {
        str(part): {
            "records": number,
            "seconds": round(max((now - times[part]).total_seconds(), 0), 1) if part in times else None,
        }
        for part, number in waits.items()
    }
    # Without the time of a partition the oldest message is not known.
    oldest = min(times.values()) if times and len(times) == len(waits) else None
    return Backlog(sum(waits.values()), None if waits else 0, oldest, detail, NO_BYTES if waits else None)


def _begins(source: Kafka, known: Known | None, seen: Seen, asked: Asked) -> Mapping[int, int]:
    """Return by partition the first offset to read that the broker still has."""
    if known is None:
        if isinstance(source.start, datetime):
            return asked.first_since(source.start, seen)
        return seen.latest if source.start == "latest" else seen.earliest
    goes_on = known.next if known.topic_id == seen.topic_id else {}
    return {part: max(goes_on.get(part, 0), earliest) for part, earliest in seen.earliest.items()}


# The answers with the rates of the pipelines' batches, and as rows of the log.


Row = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """The answer of one source of a pipeline, when it came, and at which rate the pipeline's last batches read."""

    pipeline: str
    source: str | None
    asked_at: datetime
    backlog: Backlog
    records_per_second: float | None = None
    committed_at: datetime | None = None

    @property
    def stage(self) -> str:
        """Return the stage that reads the source, as the view `lag` names it."""
        return f"receive/{self.source}" if self.source else "receive"

    def row(self) -> Row:
        """Return the answer as columns of a stage."""
        found = self.backlog
        return {
            "backlog_bytes": found.bytes,
            "backlog_records": found.records,
            "oldest_unread_at": found.oldest,
            "catch_up_seconds": backlog.catch_up_seconds(found.records, self.records_per_second),
            "asked_at": self.asked_at,
            "source_answered": not found.failed,
            "backlog_detail": dict(found.detail) or None,
            "backlog_unknown": found.why,
        }

    def stored(self) -> Row:
        """Return the answer as a row of `source_answers`."""
        found = self.backlog
        return {
            "pipeline": self.pipeline,
            "source": self.source or "",
            "asked_at": self.asked_at,
            "answered": not found.failed,
            "records": found.records,
            "bytes": found.bytes,
            "oldest_unread_at": found.oldest,
            "detail": dict(found.detail),
            "why_unknown": found.why,
        }


def ask(pipelines: Iterable[Pipeline], taken_in: Sequence[Mapping[str, Any]]) -> list[Answer]:
    """Ask the sources of some pipelines, all at once. `taken_in`: the rows of the query of that name."""
    return _with_rates(ASKER.ask(pipelines, _last_batches(taken_in)), taken_in)


def ask_each(pipelines: Iterable[Pipeline], taken_in: Sequence[Mapping[str, Any]]) -> Iterator[list[Answer]]:
    """Ask as `ask` does; yield the answers immediately, and again each time another source has answered."""
    for answers in ASKER.ask_each(pipelines, _last_batches(taken_in)):
        yield _with_rates(answers, taken_in)


def _last_batches(taken_in: Sequence[Mapping[str, Any]]) -> dict[str, int | None]:
    return {row["instance"]: row[BATCH_NO] for row in taken_in}


def _with_rates(answers: Answers, taken_in: Sequence[Mapping[str, Any]]) -> list[Answer]:
    known = {row["instance"]: row for row in taken_in}
    return [
        Answer(name, source, asked_at, answer, *(known[name][part] for part in ("records_per_second", "committed_at")))
        if name in known
        else Answer(name, source, asked_at, answer)
        for (name, source), (asked_at, answer) in answers.items()
    ]


def ask_and_store(database: Database, pipelines: Iterable[Pipeline]) -> list[Answer]:
    """Ask the sources of some pipelines and store their answers in the log. Raise Retryable if it can't be reached."""
    answers = ask(pipelines, Views(database).rows("taken_in"))
    every = timedelta(minutes=settings.ask_sources_minutes())
    SourceAnswers(database).store([one.stored() for one in answers], every)
    return answers
