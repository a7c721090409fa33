"""The page "onlyonce" in Airflow's UI: what the commit log says of each pipeline, run, batch and record.

`app` is the FastAPI app, with its pure charts and cards. `read` reads the log, and `find` the table `events`.
"""
