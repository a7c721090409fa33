"""How Airflow starts work and shows it: operators, triggers, a timetable, the page. `plugins/` and `dags/` use it."""
