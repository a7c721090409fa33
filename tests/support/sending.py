"""A pipeline whose outputs are sent: each sale to a webhook, in order for each shop, and to BigQuery.

TEST_BATCH: so many in a request.
"""

from __future__ import annotations

import os
from datetime import timedelta

from onlyonce.api.pipeline import BigQuery, Files, Output, Pipeline, Webhook

ME = "tests.support.sending_transforms"

PIPELINES = [
    Pipeline(
        name="shop",
        source=Files(max_files_a_batch=1),
        schema="id string, shop string, at timestamp, cents long, weight double",
        record_id=("id",),
        event_time="at",
        outputs=(
            Output(
                name="notify",
                transform=f"{ME}:sale",
                sink=Webhook(
                    connection="TEST_ENDPOINT", keys=("shop",), order_by=("at",), pause=timedelta(milliseconds=20),
                    batch=int(os.environ.get("TEST_BATCH", "1")),
                ),
            ),
            Output(name="rows", transform=f"{ME}:numbered", sink=BigQuery(table="p.d.t", pause=timedelta(milliseconds=20))),
        ),
    )
]  # fmt: skip
