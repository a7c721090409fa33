"""What is in the embedded PostgreSQL: the cluster, its roles, databases, passwords and URLs.

| role             | may                                                              |
|------------------|------------------------------------------------------------------|
| onlyonce_admin   | everything (the cluster's superuser; no part of the platform)    |
| onlyonce_writer  | owns the database `onlyonce`                                     |
| onlyonce_reader  | connect to `onlyonce`; `migrate` grants it the views              |
| airflow          | owns the database `airflow`                                      |

Who calls it: `onlyonce.local.database.postgres`, and `onlyonce.local.setup` for a server in a container. All of it may
be repeated: an existing role or database stays as it is.
"""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

import psycopg2
from psycopg2 import sql
from psycopg2.extensions import connection

from onlyonce.database.statements import queries
from onlyonce.local import secret_files
from onlyonce.local.database import accounts
from onlyonce.model.errors import InvariantBroken, Refused

ADMIN = "onlyonce_admin"
# url file: (role, database)
ROLES = {
    "writer": ("onlyonce_writer", "onlyonce"),
    "reader": ("onlyonce_reader", "onlyonce"),
    "airflow": ("airflow", "airflow"),
    "admin": (ADMIN, "postgres"),
}
AUTHENTICATION = "require_auth=scram-sha-256"
"""libpq's option by which no server, such as another program on the port while ours is down, gets a password in clear
text."""
READER = (
    "SET default_transaction_read_only = on",
    "SET statement_timeout = '10min'",
    "SET idle_in_transaction_session_timeout = '10min'",
    "CONNECTION LIMIT 60",
)
"""Of the role that only reads. Drivers need the server's other connections. Sessions of ours have time limits of their
own (`connect.OPTIONS`)."""
OWNERS = {"onlyonce": "onlyonce_writer", "airflow": "airflow"}


def create(folder: Path, account: accounts.Account, binaries: Path) -> None:
    """Make the cluster unless it is there. A kill on the way leaves nothing that counts as one."""
    data = folder / "data"
    if data.exists():
        return
    unfinished = folder / "data.new"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    account.own(unfinished)
    password_file = unfinished.with_suffix(".password")
    secret_files.write(password_file, _passwords(folder)[ADMIN])
    account.own(password_file)
    try:
        done = accounts.run(account, binaries, _initdb(unfinished, password_file))
    finally:
        password_file.unlink()
    if done.returncode:
        raise Refused(
            f"PostgreSQL's initdb failed: {done.stderr.strip()}",
            data="there was no database before, and there is none now",
            hint=f"mend what it names (often: disk space, or the rights of {folder}), then run it again",
        )
    unfinished.rename(data)


def _initdb(data: Path, password_file: Path) -> list[str]:
    # The built-in locale sorts alike on every machine, so an index never depends on the system's library.
    options = (
        f"initdb --username={ADMIN} --auth=scram-sha-256 --encoding=UTF8"
        " --locale=C.UTF-8 --locale-provider=builtin --lc-messages=C --no-instructions"
    )
    return [*options.split(), f"--pgdata={data}", f"--pwfile={password_file}"]


def write_urls(folder: Path, port: int) -> None:
    """Write the URL files anew: the port may have changed since the last start."""
    passwords = _passwords(folder)
    for name, (role, database) in ROLES.items():
        url = f"postgresql+psycopg2://{role}:{passwords[role]}@127.0.0.1:{port}/{database}?{AUTHENTICATION}"
        secret_files.write(folder / f"{name}.url", url + "\n")


def provision(folder: Path) -> None:
    """Make the roles and databases that are missing in the embedded server."""
    make_missing((folder / "admin.url").read_text().strip(), _passwords(folder))


def make_missing(admin_url: str, passwords: dict[str, str]) -> None:
    """Make the roles (each with its password) and databases that are missing, as the superuser of that URL."""
    session = psycopg2.connect(admin_url.replace("+psycopg2", ""))
    try:
        session.autocommit = True  # CREATE DATABASE runs in no transaction
        _create_roles(session, passwords)
        _create_databases(session)
    finally:
        session.close()
    # What is revoked of functions holds in one database.
    session = psycopg2.connect(admin_url.replace("+psycopg2", ""), dbname="onlyonce")
    try:
        with session, session.cursor() as cursor:
            cursor.execute(queries("own_server")["protect"])
    finally:
        session.close()


def _create_roles(session: connection, passwords: dict[str, str]) -> None:
    with session.cursor() as cursor:
        cursor.execute("SELECT rolname FROM pg_roles")
        there = {name for (name,) in cursor.fetchall()}
        for role in sorted(set(passwords) - there):
            statement = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
            cursor.execute(statement.format(sql.Identifier(role), sql.Literal(passwords[role])))
        for setting in READER:
            cursor.execute(f"ALTER ROLE onlyonce_reader {setting}")


def _create_databases(session: connection) -> None:
    with session.cursor() as cursor:
        cursor.execute("SELECT datname FROM pg_database")
        there = {name for (name,) in cursor.fetchall()}
        for database, owner in OWNERS.items():
            names = sql.Identifier(database), sql.Identifier(owner)
            if database not in there:
                cursor.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(*names))
            # By default every role may connect to, and make temporary tables in, every database.
            cursor.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(names[0]))
        for database in ("postgres", "template1"):  # where a role could make temporary tables and large objects too
            cursor.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(sql.Identifier(database)))
        cursor.execute("GRANT CONNECT ON DATABASE onlyonce TO onlyonce_reader")


def _new_passwords() -> dict[str, str]:
    return {role: secrets.token_hex(24) for role, _ in ROLES.values()}


def _passwords(folder: Path) -> dict[str, str]:
    path = folder / "passwords.json"
    if (folder / "data").exists() and not path.exists():
        raise InvariantBroken(
            f"{path} is gone: nobody can log in to this database.",
            data=f"the data in {folder / 'data'} is whole",
            hint="bring the file back from a copy, or set new passwords in PostgreSQL's single-user mode",
        )
    return secret_files.read_or_make(path, _new_passwords)
