"""The local Airflow: its environment, its processes, its API and its schedules."""
