"""The user's function, by window: `outputs` runs it on the stream, `recompute` on the bounded windows of a backfill. `windowing`
says which windows hold a row and which rows are late; `restart` what an earlier life has written.
"""
