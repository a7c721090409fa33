"""Users of Airflow's own auth manager, and one that permits each user only some DAGs."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import tests.support.airflow_home  # noqa: F401 - it makes the folder

os.environ.setdefault(
    "AIRFLOW__API_AUTH__JWT_SECRET", "a secret of the tests, long enough for its algorithm to take it, all of it"
)


@cache
def auth_manager() -> Any:
    """Return Airflow's auth manager, which looks up revoked tokens and a DAG's team in the tables that this makes."""
    from airflow import settings
    from airflow.api_fastapi.app import create_auth_manager
    from airflow.models import import_all_models
    from airflow.models.base import Base

    import_all_models()
    Base.metadata.create_all(settings.engine)
    return create_auth_manager()


def user(role: str, name: str = "somebody") -> Any:
    """Return a user with one of the roles of Airflow's simple auth manager."""
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    auth_manager()
    return SimpleAuthManagerUser(username=name, role=role)


def token(role: str, name: str = "somebody") -> str:
    """Return a token of such a user."""
    return str(auth_manager().generate_jwt(user(role, name)))
