"""Run the outputs' functions and write their results.

`query` runs an output's stream, `backfill_windows` its closed windows in a backfill. Both share `results`, `windows`
and the sinks. `recover` finishes a batch that has lost its checkpoint.
"""
