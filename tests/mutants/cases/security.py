"""Mutants of what docs/explanation/security.md states."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.operators import Replace

MUTANTS = (
    Mutant(
        "security-6-any-dag",
        "Airflow's page shows every pipeline to every user",
        "onlyonce/airflow/page/sight.py",
        Replace("Sight.sees", 'any(self.may(dag_id, "GET") for dag_id in self._dags.get(instance, ()))', "True"),
        tests=("tests/page/test_permissions.py::test_a_pipeline_of_other_dags_is_not_shown[/pipelines/shop]",),
    ),
    Mutant(
        "security-6-values-for-viewers",
        "viewers see values of records on Airflow's page",
        "onlyonce/airflow/page/sight.py",
        Replace("Sight.sees_records", '"GET" if who == "viewers" else "POST"', '"GET"'),
        tests=("tests/page/test_permissions.py::test_record_values_need_permission_to_start_runs",),
    ),
    Mutant(
        "security-8-any-authentication",
        "a server on the embedded server's port may ask for the password in clear text",
        "onlyonce/local/database/cluster.py",
        Replace("", 'AUTHENTICATION = "require_auth=scram-sha-256"', 'AUTHENTICATION = "require_auth="'),
        tests=("tests/security/test_fake_server.py::test_a_fake_server_gets_no_password",),
    ),
    Mutant(
        "security-12-found-of-any-owner",
        "declarations of another user that were found are run",
        "onlyonce/settings/found_file.py",
        Replace("refuse_foreign", "path.stat().st_uid not in (os.geteuid(), 0)", "False"),
        tests=("tests/security/test_found_declarations.py::test_a_found_file_of_another_user_is_not_run[file]",),
    ),
)
