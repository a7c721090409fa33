"""A pipeline whose outputs reject records: by window, by session, without windows, and with several results."""

from __future__ import annotations

from datetime import timedelta

from onlyonce.api.pipeline import Delta, Files, Output, Pipeline, Postgres
from onlyonce.core.windows import Fixed, Session
from tests.support import rejecting_transforms

MINUTE = Fixed(timedelta(minutes=1))
HERE = "tests.support.rejecting_transforms"
UNSOUND = f"{HERE}:{rejecting_transforms.unsound.__name__}"

SHOP = Pipeline(
    name="shop",
    source=Files(max_files_a_batch=1),
    schema="id string, shop string, at timestamp, cents long",
    record_id=("id",),
    event_time="at",
    outputs=(
        Output(name="per_shop", transform=f"{HERE}:per_shop", window=MINUTE, sink=Delta(), reject=UNSOUND),
        Output(name="visits", transform=f"{HERE}:visits", window=Session(timedelta(seconds=10)), sink=Delta(), reject=UNSOUND),
        Output(name="each", transform=f"{HERE}:each", sink=Postgres(table="results.each", write="append"), reject=UNSOUND),
        Output(name="small", from_output="each", sink=Delta()),
    ),
)  # fmt: skip

PIPELINES = [SHOP]
