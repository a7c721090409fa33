"""The test pipeline as machines that share nothing run it: its inbox is a prefix of the store that STORE names."""

from __future__ import annotations

import os
from dataclasses import replace

from onlyonce.api.pipeline import Files
from tests.support import stored_shop

SHOP = replace(
    stored_shop.SHOP,
    partitions=2,
    source=Files(inbox=f"{os.environ.get('STORE', 's3://nowhere')}/inbox", max_files_a_batch=1),
)

PIPELINES = [SHOP]
