"""Runs the user's function by window: `outputs` on the stream, `recompute` on the windows of a backfill. `windowing`
finds the windows of a row and the rows that are late. `restart` finds what an earlier life has written.
"""
