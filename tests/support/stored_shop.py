"""The test pipeline with what works on data in an object store so far: a Delta output by windows, and one of single
records, in a place of its own where STORED_SHOP_EACH names one; with STORED_SHOP_FILES also files there, and with
STORED_SHOP_OWNERS a join and a lookup.

STORED_SHOP_INBOX and STORED_SHOP_FORMAT: where its files come in, and which they are."""

from __future__ import annotations

import os
from typing import Any

from onlyonce.api.pipeline import Delta, Files, FileSink, Output, Pipeline
from tests.support.marked_shop import JOINED, LOOKED_UP
from tests.support.shop import MINUTE, WATERMARK_DELAY

FORM: Any = os.environ.get("STORED_SHOP_FORMAT", "json")
SHOP = Pipeline(
    name="shop",
    source=Files(inbox=os.environ.get("STORED_SHOP_INBOX"), format=FORM, max_files_a_batch=1),
    schema="id string, shop string, at timestamp, cents long, weight double",
    record_id=("id",),
    event_time="at",
    outputs=(
        Output(name="per_shop", transform="tests.support.shop_transforms:per_shop", window=MINUTE, watermark_delay=WATERMARK_DELAY, sink=Delta()),
        Output(name="each", transform="tests.support.shop_transforms:each", sink=Delta(path=os.environ.get("STORED_SHOP_EACH"))),
        *(
            Output(name=name, transform="tests.support.shop_transforms:per_shop", window=MINUTE, watermark_delay=WATERMARK_DELAY, sink=FileSink(path=path, shards=1))
            for name, path in (("filed", os.environ.get("STORED_SHOP_FILES")),) if path
        ),
        *((JOINED, LOOKED_UP) if "STORED_SHOP_OWNERS" in os.environ else ()),
    ),
)  # fmt: skip

PIPELINES = [SHOP]
