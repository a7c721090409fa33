"""Gives each record one fate.

`blocks.exchange` turns lines into records and brings them to `receive_task`, which judges them (`receive_unit`) and
writes them (`event_files`). For a small batch `in_driver` does the same without a Spark job. Each batch is one Delta
commit to `events`.
"""
