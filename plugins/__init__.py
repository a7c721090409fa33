"""For plugins of a team's own.

That of the package comes by its entry point `airflow.plugins`: nothing is copied here.
"""
