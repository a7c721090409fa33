"""A pipeline whose only sink is in another database than the log: each record as a row, in one unit a batch."""

from __future__ import annotations

from onlyonce.api.pipeline import Files, Output, Pipeline, Postgres

PIPELINES = [
    Pipeline(
        name="shop",
        source=Files(),
        schema="id string, shop string, at timestamp, cents long, weight double",
        record_id=("id",),
        event_time="at",
        partitions=1,
        outputs=(
            Output(
                name="plain", transform="tests.support.kinds:plain",
                sink=Postgres(table="results.plain", connection="TEST_OTHER_DATABASE"),
            ),
        ),
    )
]  # fmt: skip
