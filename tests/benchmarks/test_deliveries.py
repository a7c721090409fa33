"""How many rows a second go from the outbox to an endpoint that answers at once, by how many share a request. No JVM.

The endpoint is a process of its own on this machine. It must have had each row once, and those of each key in their
order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from onlyonce.api.pipeline import Webhook
from onlyonce.settings import ROOT
from tests.benchmarks import measure
from tests.contract.conftest import Log
from tests.contract.outboxes import Outbox
from tests.support.platform import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROWS = int(os.environ.get("ONLYONCE_BENCH_DELIVERIES", "50000"))
KEYS = 1_000
BATCHES = (1, 10, 100, 500)
TARGET = 5_000
"""A second, of those that share requests by the hundred."""
PUT = f"""
    INSERT INTO onlyonce_private.outbox (instance, output, unit, seq, checkpoint_id, key, payload)
    SELECT 'shop', 'notify', 'shop/notify/1/0/notify/' || (n % {KEYS}) % 8, n, gen_random_uuid(), 'shop ' || n % {KEYS},
           json_build_object('id', md5(n::text), 'shop', n % {KEYS}, 'n', n, 'text', repeat('about a hundred bytes ', 5))
    FROM generate_series(1, {ROWS}) n"""


def test_deliveries(new_log: Callable[[], Log], server: Server, tmp_path: Path) -> None:
    """Rows a second, and the processor time of a thousand: of the deliverer, its PostgreSQL and the endpoint."""
    found = {str(batch): _delivered(new_log(), server, tmp_path / f"{batch}.jsonl", batch) for batch in BATCHES}
    shown = Table(
        "rows in a request",
        "rows/s",
        "processor seconds for 1,000",
        title=f"{ROWS:,} rows of {KEYS:,} keys, target {TARGET:,} a second",
    )
    for batch, one in found.items():
        shown.add_row(batch, f"{one['rows_per_second']:,}", f"{one['cpu_seconds_of_1000']:.3f}")
    Console(width=100).print(shown)
    measure.keep("deliveries", by_batch=found, rows=ROWS, keys=KEYS, target=TARGET, **measure.circumstances())


def _delivered(log: Log, server: Server, received: Path, batch: int) -> dict[str, float]:
    box = Outbox(log)
    log.rows(PUT)
    with _endpoint(received) as url:
        began, used = time.monotonic(), measure.cpu_seconds(server)
        assert box.deliver(Webhook(url=url, keys=("shop",), batch=batch))
        seconds, cpu = time.monotonic() - began, measure.cpu_seconds(server) - used
    bodies = [json.loads(line) for line in received.read_text().splitlines()]
    rows = bodies if batch == 1 else [event["data"] for events in bodies for event in events]
    assert Counter(row["n"] for row in rows) == Counter(range(1, ROWS + 1))
    by_key = defaultdict(list)
    for row in rows:
        by_key[row["shop"]].append(row["n"])
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert box.states() == Counter({("delivered",): ROWS})
    return {
        "rows_per_second": round(ROWS / seconds),
        "seconds": round(seconds, 2),
        "cpu_seconds_of_1000": round(1000 * cpu / ROWS, 4),
    }


@contextmanager
def _endpoint(received: Path) -> Iterator[str]:
    """Its address; when it has ended, each body is a line of the file."""
    started = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.quick_endpoint", str(received)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert started.stdout is not None
        yield f"http://127.0.0.1:{int(started.stdout.readline())}/"
    finally:
        started.terminate()
        started.wait(30)
