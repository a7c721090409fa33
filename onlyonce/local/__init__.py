"""All that runs on one machine without a cluster: the embedded PostgreSQL and Airflow, the demo and its data."""
