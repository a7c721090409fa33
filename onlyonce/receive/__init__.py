"""One fate for each record. `exchange` brings lines as records to `receive_task`, which judges them (`receive_unit`) and writes
them (`event_files`); where a batch is small `in_driver` calls that itself. One Delta commit to `events` for each batch.
"""
