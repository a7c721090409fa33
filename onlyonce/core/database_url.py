"""URLs of databases: every spelling of PostgreSQL's that people use means the driver that is installed. Pure."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

SCHEMES = ("postgresql", "postgres", "postgresql+psycopg", "postgresql+psycopg2")
"""The last is the driver that is installed. It takes the same URLs as psycopg 3."""
PORTS = {"mysql": 3306, "mariadb": 3306}
"""The ports of databases other than PostgreSQL."""
EXAMPLE = "postgresql://user:password@host:5432/database"


def with_driver(url: str) -> str:
    """Return a URL of PostgreSQL with our driver in its scheme, and any other string as it is.

    libpq, Heroku and Airflow write `postgresql://` or `postgres://`. SQLAlchemy takes the first for psycopg 3, which is
    not installed, and does not know the second.
    """
    scheme, found, rest = url.partition("://")
    return f"{SCHEMES[-1]}://{rest}" if found and scheme.lower() in SCHEMES else url


def is_postgres(url: str) -> bool:
    """Return whether a string begins as a URL of PostgreSQL does, and its port is a number."""
    scheme, found, rest = url.partition("://")
    return bool(found and rest) and scheme.lower() in SCHEMES and _has_port(url)


def _has_port(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.port is None or parts.port > 0
    except ValueError:  # neither names the setting, and the text may have the password
        return False


def address(url: str) -> str:
    """Return host, port and database of a URL, without its login. Raise ValueError for a string that is not a URL.

    A host without TCP is the folder of its socket, which libpq takes from the query.
    """
    parts = urlsplit(url)
    asked = parse_qs(parts.query)
    host = parts.hostname or asked.get("host", ["localhost"])[0]
    port = parts.port or asked.get("port", [PORTS.get(parts.scheme.partition("+")[0], 5432)])[0]
    return f"{host}:{port}{parts.path}"
