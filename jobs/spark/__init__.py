"""Spark does the data. With the transforms, the only place that imports pyspark.

In the order of the flow: `session` → `sources` (`source_files`, `source_kafka`) → `receive` → the table `events` → `windowing` →
`outputs` → `sink_delta`, `sink_postgres`, `sink_outbox`. `checkpoint`, `delta`, `content` and `failures` serve them. `news` finds what
is new in a source (`listing`, `growing`, `typed_files`, `custom`).

Within receive: `arrived` brings lines (`line_reader`) as records (`plain_records`, `parse`) to `receive_task`, which judges them
(`receive_unit`) and writes them (`event_files`); where a batch is small `in_driver` calls that itself. These, `postgres_unit` and
`files_unit` run on the executors; all else on the driver.
"""
