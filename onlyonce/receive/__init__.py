"""Give each record one fate.

`exchange` turns lines into records and brings them to the tasks of `batch_files`, which judge them (`unit`) and write
them (`events`). For a small batch the driver does the tasks' work without a Spark job. Each batch is one Delta commit
to `events`.
"""
