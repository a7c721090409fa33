"""A shop whose log is read where it grows, and where its rotated files are shipped to: two sources with one id
space."""

from __future__ import annotations

import os

from onlyonce.api.pipeline import Files, Growing, Output, Pipeline, Postgres

PIPELINES = [
    Pipeline(
        name="shop",
        sources={"live": Growing(), "rotated": Files(inbox=os.environ.get("ROTATED_SHOP_INBOX", "s3://nowhere"))},
        id_space="shared",
        schema="id string, shop string, at timestamp, cents long, weight double",
        record_id="id",
        event_time="at",
        outputs=(
            Output(name="each", transform="tests.support.shop_transforms:each", sink=Postgres(table="results.each")),
        ),
    ),
]
