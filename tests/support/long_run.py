"""A long run under test: what feeds it while it is at work, and how a test waits for what it does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onlyonce.commitlog.drivers import LongRuns
from onlyonce.database.connect import Database
from tests.support.platform import JOB_TIMEOUT, Platform

QUICK = {"ONLYONCE_HEARTBEAT": "0.5"}


def until(condition: Callable[[], bool], what: str) -> None:
    """Look until the condition holds; fails when it does not within the time of a job."""
    for _ in range(JOB_TIMEOUT * 10):
        if condition():
            return
        threading.Event().wait(0.1)
    raise AssertionError(f"waited in vain for {what}")


def state(platform: Platform) -> str | None:
    """What the log says of the long run."""
    if platform.sql("SELECT to_regclass('onlyonce.long_runs') AS there")["there"].isna().all():
        return None
    return next(iter(platform.sql("SELECT state FROM onlyonce.long_runs")["state"]), None)


def rounds(platform: Platform) -> int:
    """How many rounds the driver at work has told of."""
    return int(platform.sql("SELECT rounds FROM onlyonce.long_runs")["rounds"].sum())


def committed(platform: Platform, query: str = "receive") -> int:
    """How many batches of a query are committed; none while there is no log."""
    if platform.sql("SELECT to_regclass('onlyonce.batches') AS there")["there"].isna().all():
        return 0
    found = platform.sql(f"SELECT count(*) AS n FROM onlyonce.batches WHERE query = '{query}' AND state = 'committed'")
    return int(found["n"][0])


READ_UPTO = "(o.source_to->>'reservoirVersion')::bigint - ((o.source_to->>'index')::bigint < 0)::int"
"""The last version of `events` that a batch `o` of an output has read."""


def read_upto(platform: Platform) -> list[int]:
    """The last version of `events` that each batch of an output has begun to read."""
    found = platform.sql(f"""SELECT {READ_UPTO} AS version FROM onlyonce_private.batches o
                             JOIN onlyonce_private.incarnations l ON l.incarnation = o.incarnation AND l.query <> 'receive'""")
    return [int(version) for version in found["version"]]


def out_of_order(platform: Platform) -> int:
    """How many (output batch, receive batch) pairs there are where the output began on rows whose batch had not ended,
    and how many closes fell into a receive batch: none, by whatever luck of two threads."""
    received = "JOIN onlyonce_private.incarnations s ON s.incarnation = r.incarnation AND s.query = 'receive'"
    found = platform.sql(f"""
        SELECT (SELECT count(*) FROM onlyonce_private.batches o
                JOIN onlyonce_private.incarnations l ON l.incarnation = o.incarnation AND l.query <> 'receive'
                JOIN onlyonce_private.batches r ON r.delta_version <= {READ_UPTO} {received}
                WHERE o.begun_at < r.committed_at)
             + (SELECT count(*) FROM onlyonce_private.batches o
                JOIN onlyonce_private.incarnations l ON l.incarnation = o.incarnation AND l.query <> 'receive'
                JOIN onlyonce_private.watermark_markers r ON r.delta_version <= {READ_UPTO} WHERE o.begun_at < r.committed_at)
             + (SELECT count(*) FROM onlyonce_private.watermark_markers c JOIN onlyonce_private.batches r USING (incarnation)
                WHERE c.begun_at < r.committed_at AND c.committed_at > r.begun_at) AS n""")
    return int(found["n"][0])


def ask_stop(platform: Platform, pipeline: str = "shop") -> None:
    """As `onlyonce stop` does."""
    database = Database(platform.environment["ONLYONCE_DATABASE_URL"])
    LongRuns(database).ask_stop(pipeline)


@contextmanager
def meanwhile(platform: Platform, work: Callable[[], None]) -> Iterator[None]:
    """Do something beside a long run of this process; whatever comes of it, the run is asked to stop at its end."""
    failures: list[BaseException] = []

    def on_a_thread() -> None:
        try:
            until(lambda: state(platform) == "running", "a long run")
            work()
        except BaseException as error:
            failures.append(error)
        finally:
            ask_stop(platform)

    thread = threading.Thread(target=on_a_thread)
    thread.start()
    yield
    thread.join()
    if failures:
        raise failures[0]
