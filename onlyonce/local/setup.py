"""Create what the containers need before anything else starts: roles, databases, tables, the password of the UI.

    python -m onlyonce.local.setup      the service `setup` of docker-compose.yml, at each start

Existing roles and databases stay as they are, so it may be killed and run again. The URLs in the environment name the
roles and hold their passwords. A password that is changed in `.env` does not change in the server; that needs an ALTER
ROLE.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from sqlalchemy.engine import make_url

from onlyonce import environment, settings
from onlyonce.core.errors import OnlyonceError, Refused
from onlyonce.database.migrate import migrate
from onlyonce.local import airflow_server, postgres, processes

AIRFLOW_URL = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"


def main() -> int:
    """Bring the database and Airflow's files to this version; return 0, or the exit code of what failed."""
    try:
        postgres.make_missing(settings.admin_url(), passwords())
        applied = migrate(settings.database_url())
        print(f"the platform's tables are up to date ({', '.join(applied) or 'nothing was missing'})")
        write_ui_password(
            Path(_of_airflow("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE")), settings.airflow_password()
        )
    except OnlyonceError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=False).returncode


def passwords() -> dict[str, str]:
    """Return the password of each role, by the URLs of the environment. Raise Refused if a URL has none."""
    urls = {
        "ONLYONCE_DATABASE_URL": settings.database_url(),
        "ONLYONCE_READER_URL": settings.reader_url(),
        AIRFLOW_URL: _of_airflow(AIRFLOW_URL),
    }
    found = {}
    for name, url in urls.items():
        role = make_url(url)
        if not role.username or not role.password:
            raise Refused(
                f"{name} has no {'password' if role.username else 'role'}",
                data="no role and no database was created",
                hint="write the URL as postgresql+psycopg2://ROLE:PASSWORD@HOST/DATABASE, as docker-compose.yml does",
            )
        found[role.username] = str(role.password)
    return found


def _of_airflow(name: str) -> str:
    if (value := environment.variable(name)) is None:
        raise Refused(
            f"{name} {environment.why_missing(name)}",
            data="nothing was read or written",
            hint="set it as docker-compose.yml does",
        )
    return value


def write_ui_password(path: Path, password: str) -> None:
    """Write the password file before Airflow would make a password and print it to a log.

    Airflow opens the file to write, so it can't be a secret's mount.
    """
    processes.write_secret(path, json.dumps({airflow_server.USER: password}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
