"""Store what the sources of a run have that no batch has committed, after the run's batches.

A thread of its own asks, as the DAG `onlyonce_ask_sources` does, so that no batch waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import structlog

from onlyonce.context import RunContext
from onlyonce.core.runs import first_line
from onlyonce.database.connect import Database
from onlyonce.sources import answers
from onlyonce.sources.backlog import KEPT_SECONDS, PATIENCE_SECONDS

log = structlog.get_logger()

POLL_SECONDS = 0.2
"""How often the thread checks whether a batch is committed."""


@contextmanager
def stored_after_batches(context: RunContext) -> Iterator[None]:
    """Ask the sources after each batch of receive and store their answers, until the block exits.

    Quick batches share an answer: there is one request in KEPT_SECONDS at most, and fewer if a source takes long. After
    the last batch the sources are asked once more, and the exit waits for that no longer than a source may take. A
    bounded run stores no answer: it does not commit the stream's input.
    """
    if context.bounded:
        yield
        return
    end = Event()
    thread = Thread(target=_store_until, args=(context, end), name="source answers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(PATIENCE_SECONDS + 1)


def _store_until(context: RunContext, end: Event) -> None:
    # Not an incarnation's name: a starting driver ends the sessions with its incarnations' names.
    database = Database(context.database.url, f"onlyonce-source-answers/{context.instance}")
    while not end.is_set():
        if context.batch_committed.wait(POLL_SECONDS):
            began = time.monotonic()
            _store(context, database)
            # A long manifest takes long to read: asking takes a twentieth of the time at most.
            end.wait(max(KEPT_SECONDS, 20 * (time.monotonic() - began)))
    if context.batch_committed.is_set():
        _store(context, database)


def _store(context: RunContext, database: Database) -> None:
    context.batch_committed.clear()  # a batch that is committed from now on needs another answer
    try:
        answers.ask_and_store(database, [context.pipeline])
    except Exception as error:  # the run's data does not depend on it, and the next request stores an answer
        log.warning("the answers of sources are not stored", problem=first_line(error))
