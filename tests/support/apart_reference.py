"""The pipelines that ship as machines that share nothing run them: inbox and sharded files are in the bucket that STORE
names."""

from __future__ import annotations

import os
from dataclasses import replace

from jobs.pipelines import FLIGHTS, USER_COUNTS
from onlyonce.api.pipeline import Files, FileSink, Pipeline

STORE = os.environ.get("STORE", "s3://nowhere")
BESIDE = f"?scheme=http&endpoint_override={os.environ.get('AWS_ENDPOINT_URL', '').removeprefix('http://')}"


def apart(pipeline: Pipeline) -> Pipeline:
    """The same in the store, in two partitions."""
    outputs = tuple(
        replace(output, sink=replace(output.sink, path=f"{STORE}/files/{output.name}{BESIDE}"))
        if isinstance(output.sink, FileSink)
        else output
        for output in pipeline.outputs
    )
    return replace(
        pipeline,
        partitions=2,
        source=Files(inbox=f"{STORE}/inbox/{pipeline.name}", max_files_a_batch=3),
        outputs=outputs,
    )


PIPELINES = [apart(FLIGHTS), apart(USER_COUNTS)]
