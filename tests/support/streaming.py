"""A pipeline whose output goes to a write stream of BigQuery."""

from __future__ import annotations

from onlyonce import BigQueryStream, Files, Output, Pipeline

PIPELINES = [
    Pipeline(
        name="shop",
        source=Files(max_files_a_batch=1),
        schema="id string, shop string, at timestamp, cents long, weight double",
        record_id="id",
        event_time="at",
        outputs=Output(name="streamed", transform="tests.support.kinds:plain", sink=BigQueryStream(table="p.d.t")),
    )
]
