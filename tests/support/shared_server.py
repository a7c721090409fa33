"""The PostgreSQL that the tests of a session share: it hands out databases quickly.

A test kills processes and servers, never the machine, so nothing needs to reach the disk: what a process has written,
the operating system keeps. A database is copied as files, and one that is migrated is a copy of one that was migrated
once.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from uuid import uuid4

import psycopg2
from sqlalchemy.engine import make_url

from onlyonce.database.migrate import migrate
from onlyonce.testing.scratch import Server


@dataclass(frozen=True)
class SharedServer(Server):
    """A server of tests, by the folder of its platform."""

    def hurry(self) -> None:
        """Let it wait for no disk, and hash a password once, from now on: 4,096 times cost a client 3 ms for each
        session."""
        for setting in ("fsync", "full_page_writes"):
            self._do(f"ALTER SYSTEM SET {setting} = off")
        self._do("SELECT pg_reload_conf()")
        for role in ("admin", "writer", "reader"):
            url = make_url(self.url(role))
            self._do(f"SET scram_iterations = 1; ALTER ROLE \"{url.username}\" PASSWORD '{url.password}'")

    def new_database(self) -> str:
        """A fresh database, owned by the writer."""
        return self.copy_of("template1")

    def new_migrated(self) -> str:
        """A fresh database at this version of the platform, with an identity of its own."""
        name = self.copy_of(self._migrated)
        with closing(psycopg2.connect(self.url("writer", name).replace("+psycopg2", ""))) as session, session:
            session.cursor().execute("UPDATE onlyonce_private.this_database SET id = gen_random_uuid()")
        return name

    def copy_of(self, template: str, name: str = "") -> str:
        """A copy of a database that nobody is connected to, owned by the writer; gives its name."""
        name = name or f"scratch_{uuid4().hex[:12]}"
        self._do(f'CREATE DATABASE "{name}" OWNER onlyonce_writer TEMPLATE "{template}" STRATEGY FILE_COPY')
        return name

    def new_encoded(self, encoding: str) -> str:
        """Create a database with another encoding than UTF-8, owned by the writer; return its name."""
        name = f"scratch_{uuid4().hex[:12]}"
        self._do(
            f"CREATE DATABASE {name} OWNER onlyonce_writer TEMPLATE template0 ENCODING '{encoding}' "
            "LOCALE_PROVIDER libc LC_COLLATE 'C' LC_CTYPE 'C'"
        )
        return name

    @cached_property
    def _migrated(self) -> str:
        name = self.new_database()
        migrate(self.url("writer", name))
        self._do(f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}'")
        return name
