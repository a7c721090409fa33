"""URLs of PostgreSQL: every spelling that people use means the driver that is installed. Pure."""

from __future__ import annotations

SCHEMES = ("postgresql", "postgres", "postgresql+psycopg2")
EXAMPLE = "postgresql://user:password@host:5432/database"


def with_driver(url: str) -> str:
    """Return a URL of PostgreSQL with our driver in its scheme, and any other text as it is.

    libpq, Heroku and Airflow write `postgresql://` or `postgres://`. SQLAlchemy takes the first for psycopg 3, which is
    not installed, and does not know the second.
    """
    scheme, found, rest = url.partition("://")
    return f"{SCHEMES[-1]}://{rest}" if found and scheme.lower() in SCHEMES else url


def is_postgres(url: str) -> bool:
    """Return whether a text begins as a URL of PostgreSQL does."""
    scheme, found, rest = url.partition("://")
    return bool(found and rest) and scheme.lower() in SCHEMES
