"""Spark does the data. With the transforms, the only place that imports pyspark.

In the order of the flow: `session` → `sources` (`source_files`, `source_kafka`) → `receive` (its units: `receive_unit`) → the table
`events` → `windowing` → `outputs` → `sink_delta`, `sink_postgres`, `sink_outbox`. `checkpoint`, `delta`, `content` and
`failures` serve them. `news` finds what is new in a source (`listing`, `growing`, `typed_files`, `custom`). On the driver: all but `receive_unit` and `postgres_unit`, which run on the executors.
"""
