"""What a team's own DAG file looks like. The declarations are those of the setting ONLYONCE_PIPELINES."""

from onlyonce.airflow import dags

globals().update(dags())
