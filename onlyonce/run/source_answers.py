"""Store what the sources of a run have that no batch has committed, after the run's batches.

A thread of its own asks, as the DAG `onlyonce_ask_sources` does, so that no batch waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import structlog

from onlyonce.context import RunContext
from onlyonce.core import backlog
from onlyonce.core.runs import first_line
from onlyonce.database.connect import Database
from onlyonce.sources import backlog as sources_backlog

log = structlog.get_logger()


@contextmanager
def stored_after_batches(context: RunContext) -> Iterator[None]:
    """Ask the sources after each batch of receive and store their answers, until the block exits.

    Quick batches share an answer: there is one request in KEPT_SECONDS at most, and fewer if a source takes long. After
    the last batch the sources are asked again, and the exit waits for that no longer than a source may take. A
    bounded run stores no answer: it does not commit the stream's input.
    """
    if context.bounded:
        yield
        return
    thread = Thread(target=_store_until_end, args=(context,), name="source answers", daemon=True)
    thread.start()
    try:
        yield
    finally:
        context.committed.end()
        thread.join(backlog.ANSWER_SECONDS + 1)


def _store_until_end(context: RunContext) -> None:
    # Not an incarnation's name: a starting driver ends the sessions with its incarnations' names.
    database = Database(context.database.url, f"onlyonce-source-answers/{context.instance}")
    committed, asked_after = context.committed, 0
    while True:
        committed.wait_beyond(asked_after)
        if committed.number == asked_after:  # the end
            return
        asked_after, began = committed.number, time.monotonic()
        _store(context, database)
        # A long manifest takes long to read, so the driver spends at most a twentieth of its time on asking.
        committed.wait_for_end(max(backlog.KEPT_SECONDS, 20 * (time.monotonic() - began)))


def _store(context: RunContext, database: Database) -> None:
    try:
        sources_backlog.ask_and_store(database, [context.pipeline])
    except Exception as error:  # the run's data does not depend on it, and the next request stores an answer
        log.warning("the answers of sources are not stored", problem=first_line(error))
