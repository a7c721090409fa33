"""A program that has taken the embedded server's port while the server is down."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest

from onlyonce.local.database import cluster
from onlyonce.local.standalone import airflow_environment
from tests.security.statements import states

COMPOSE = Path(__file__).parents[2] / "docker-compose.yml"


class FakeServer:
    """Speak PostgreSQL's protocol far enough to ask for a password in clear text, and keep what comes."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.got = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            with client:
                self._talk(client)

    def _talk(self, client: socket.socket) -> None:
        client.settimeout(10)
        while message := client.recv(4096):
            if len(message) == 8:  # SSLRequest or GSSENCRequest: neither
                client.sendall(b"N")
                continue
            if message[:1] == b"p":
                self.got += message
                return
            client.sendall(b"R" + struct.pack("!II", 8, 3))  # AuthenticationCleartextPassword

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    """Yield a fake server on a port of the loopback address."""
    server = FakeServer()
    yield server
    server.close()


@states("A program that takes the server's port gets no password: each URL that libpq reads has `require_auth=scram-sha-256`.")
def test_a_fake_server_gets_no_password(fake: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of no role, by no URL that libpq reads; the fake does get the password of a URL without the option."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    folder = tmp_path / "postgres"
    folder.mkdir()
    cluster.write_urls(folder, fake.port)
    passwords = json.loads((folder / "passwords.json").read_text())
    urls = [(folder / f"{name}.url").read_text().strip() for name in cluster.ROLES]
    urls.append(airflow_environment.airflow_url("postgresql+psycopg2"))

    for url in urls:
        with pytest.raises(psycopg2.OperationalError):
            psycopg2.connect(url.replace("+psycopg2", ""), connect_timeout=10).close()
    assert fake.got == b""

    with pytest.raises(psycopg2.OperationalError):
        psycopg2.connect(urls[0].replace("+psycopg2", "").partition("?")[0], connect_timeout=10).close()
    assert any(password.encode() in fake.got for password in passwords.values())
    assert "?" not in airflow_environment.airflow_url("postgresql+asyncpg")


@states("Compose's URLs have it too.")
def test_composes_urls_require_scram_too() -> None:
    """Each URL of psycopg2 there."""
    urls = [line for line in COMPOSE.read_text().splitlines() if "postgresql+psycopg2://" in line]

    assert len(urls) >= 4
    assert all("require_auth=${POSTGRES_AUTH:-scram-sha-256}" in url for url in urls)
