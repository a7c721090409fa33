"""Runs of a pipeline: `drain` takes in what is there, `long_run` and `continuous` go on without end, `lineage` begins a
new life of a query."""
