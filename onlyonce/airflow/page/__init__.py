"""The page "Exactly once" in Airflow's UI: what the commit log says of each pipeline, run, batch and record.

`app` is the FastAPI app; the effects are in `read` (the log) and `search` (the table `events`); `charts` and `cards`
are pure.
"""
