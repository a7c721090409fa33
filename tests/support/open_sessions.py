"""Sessions with early panes in each sink that can replace the rows of all open sessions, by each trigger."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from typing import Literal

from onlyonce import AfterRecords, AfterTime, Delta, Files, FileSink, Output, Pipeline, Postgres, Session
from onlyonce.api.sinks import Sink
from onlyonce.core.triggers import Trigger

MINUTE = timedelta(minutes=1)
KEYS = ("window_start", "shop")
HERE = "tests.support.shop_transforms"
SECONDS = int(os.environ.get("PANED_SECONDS", "60"))


def output(name: str, panes: Literal["early"] | Trigger, sink: Sink) -> Output:
    """An output of sessions with these panes."""
    return Output(
        name=name,
        transform=f"{HERE}:per_shop",
        window=Session(5 * MINUTE),
        watermark_delay=10 * MINUTE,
        panes=panes,
        sink=sink,
    )


SHOP = Pipeline(
    name="shop",
    source=Files(max_files_a_batch=1),
    schema="id string, shop string, at timestamp, cents long, weight double",
    record_id=("id",),
    event_time="at",
    outputs=(
        output("in_postgres", "early", Postgres(table="results.in_postgres", write="upsert", keys=KEYS)),
        output("in_delta", "early", Delta(write="upsert", keys=KEYS)),
        output("in_files", "early", FileSink(shards=2)),
        output("counted", AfterRecords(7), Postgres(table="results.counted", write="upsert", keys=KEYS)),
        output("timed", AfterRecords(30) | AfterTime(timedelta(seconds=SECONDS)), Delta(write="upsert", keys=KEYS)),
    ),
)

ALONE = replace(
    SHOP,
    name="alone",
    outputs=(output("alone", "early", Postgres(table="results.alone", write="upsert", keys=KEYS)),),
)

PIPELINES = [SHOP, ALONE]
