"""The address and login of Airflow: any Airflow, by its URL and a token or a login; by default the one of this
platform's folder.

| variable                                             | meaning                                          |
|------------------------------------------------------|--------------------------------------------------|
| ONLYONCE_AIRFLOW_URL, else AIRFLOW__API__BASE_URL    | the address of Airflow's API server              |
| ONLYONCE_AIRFLOW_TOKEN, else AIRFLOW_CLI_TOKEN       | a token of its API; with it nobody logs in       |
| ONLYONCE_AIRFLOW_USER, ONLYONCE_AIRFLOW_PASSWORD     | a login, for auth managers that have `/auth/token` |
"""

from __future__ import annotations

from dataclasses import dataclass, field

from onlyonce import settings
from onlyonce.environment import variable
from onlyonce.local.standalone import airflow_environment
from onlyonce.model.errors import Refused


@dataclass(frozen=True)
class Address:
    """An Airflow: its URL, and a token, or a user with a password.

    The secrets are never printed. `own`: it is the embedded one.
    """

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    own: bool = False

    @property
    def on_loopback(self) -> bool:
        """Whether it is on this machine: a proxy from the environment knows nothing of that address."""
        return "://127.0.0.1" in self.url or "://localhost" in self.url or "://[::1]" in self.url


def of_environment() -> Address:
    """The Airflow that the environment names, or the embedded one. Raises Refused where another's login is missing."""
    given = settings.airflow_login()
    url = given.url or variable("AIRFLOW__API__BASE_URL")
    token, user, password = given.token or variable("AIRFLOW_CLI_TOKEN") or "", given.user, given.password
    own = f"http://127.0.0.1:{settings.airflow_port()}"
    address = Address((url or own).rstrip("/"), user or airflow_environment.USER, password, token)
    if token or password:
        return address
    if address.url != own:
        raise Refused(
            f"no login is known for Airflow at {address.url}",
            data="nothing was changed",
            hint="set ONLYONCE_AIRFLOW_TOKEN, or ONLYONCE_AIRFLOW_USER and ONLYONCE_AIRFLOW_PASSWORD",
        )
    return Address(own, airflow_environment.USER, airflow_environment.password(), own=True)
