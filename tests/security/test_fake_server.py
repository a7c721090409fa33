"""A program that has taken the embedded server's port while the server is down."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg2
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from onlyonce.core.errors import OnlyonceError, Refused
from onlyonce.database.connect import Database, transaction
from onlyonce.local import airflow_server, postgres
from onlyonce.sinks.outbox import send_kafka
from tests.compose import composed
from tests.security.statements import states


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
            with client, suppress(OSError):  # the client may go at any time
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


@states(
    "A program that takes the server's port gets no password: each URL that libpq reads has "
    "`require_auth=scram-sha-256`."
)
def test_a_fake_server_gets_no_password(fake: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of no role, by no URL that libpq reads; the fake does get the password of a URL without the option."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    folder = tmp_path / "postgres"
    folder.mkdir()
    postgres.write_urls(folder, fake.port)
    passwords = json.loads((folder / "passwords.json").read_text())
    urls = [(folder / f"{name}.url").read_text().strip() for name in postgres.ROLES]
    urls.append(airflow_server.airflow_url("postgresql+psycopg2"))

    for url in urls:
        with pytest.raises(psycopg2.OperationalError):
            psycopg2.connect(url.replace("+psycopg2", ""), connect_timeout=10).close()
    assert fake.got == b""

    with pytest.raises(psycopg2.OperationalError):
        psycopg2.connect(urls[0].replace("+psycopg2", "").partition("?")[0], connect_timeout=10).close()
    assert any(password.encode() in fake.got for password in passwords.values())
    assert "?" not in airflow_server.airflow_url("postgresql+asyncpg")


@states("Compose's URLs have it too.")
def test_composes_urls_require_scram_too() -> None:
    """Each URL of psycopg2, and the connection that Airflow makes a URL of."""
    services = composed.load()["services"].values()
    variables = [
        (name, composed.filled(value)) for one in services for name, value in composed.environment(one).items()
    ]
    urls = {value for _, value in variables if value.startswith("postgresql+psycopg2://")}
    connections = {value for name, value in variables if name.startswith("AIRFLOW_CONN_") and "postgres" in value}

    assert len(urls) >= 4
    assert {parse_qs(urlsplit(url).query)["require_auth"][0] for url in urls} == {"scram-sha-256"}
    assert [json.loads(one)["extra"]["require_auth"] for one in connections] == ["scram-sha-256"]


PASSWORD = "secret-of-the-sink"
HANDSHAKE = (
    b"\x0a8.0.40\0" + struct.pack("<I", 7) + b"8" * 8 + b"\0" + struct.pack("<HBHHB", 0xF7DF, 45, 2, 0x00FF, 21) + bytes(10)
    + b"8" * 12 + b"\0mysql_native_password\0"
)  # fmt: skip
"""A server of MySQL 8 without TLS: its flags, a salt, and a method that the client may begin with."""
OK = b"\0\0\0\2\0\0\0"


class FakeMySQL(FakeServer):
    """Speak MySQL's protocol far enough to ask for a password by a method, or to ask for a file of the client once it
    has let the client in."""

    asks = b""
    file = b""

    def _talk(self, client: socket.socket) -> None:
        client.settimeout(10)
        self._send(client, 0, HANDSHAKE)
        number, _ = self._receive(client)
        if self.asks:
            self._send(
                client, number + 1, b"\xfe" + self.asks + b"\0" + (b"\4Password: " if self.asks == b"dialog" else b"")
            )
            number, answer = self._receive(client)
            self.got += answer
        self._send(client, number + 1, OK)
        while self.file:
            number, query = self._receive(client)
            if b"SET NAMES" in query:  # PyMySQL does not look at the answer to its first statement
                self._send(client, number + 1, OK)
                continue
            self._send(client, number + 1, b"\xfb" + self.file)
            self.got += self._receive(client)[1]

    def _send(self, client: socket.socket, number: int, content: bytes) -> None:
        client.sendall(len(content).to_bytes(3, "little") + bytes([number]) + content)

    def _receive(self, client: socket.socket) -> tuple[int, bytes]:
        head = client.recv(4, socket.MSG_WAITALL)
        if len(head) < 4:
            raise OSError("the client has gone")
        return head[3], client.recv(int.from_bytes(head[:3], "little"), socket.MSG_WAITALL)


@pytest.fixture
def fake_mysql() -> Iterator[FakeMySQL]:
    """Yield a fake server of MySQL."""
    server = FakeMySQL()
    yield server
    server.close()


def ask_mysql(server: FakeMySQL, options: str = "") -> None:
    """Open a session as a sink does, once."""
    with transaction(Database(f"mysql://sink:{PASSWORD}@127.0.0.1:{server.port}/shop?{options}")) as connection:
        connection.exec_driver_sql("SELECT 1")


@states(
    "A MySQL sink sends its password in clear text over TLS only, and never a file of this machine, whatever the "
    "server asks for."
)
@pytest.mark.parametrize("method", [b"mysql_clear_password", b"dialog"])
def test_a_fake_mysql_server_gets_no_password(fake_mysql: FakeMySQL, method: bytes) -> None:
    """By either method; PyMySQL by itself sends it."""
    fake_mysql.asks = method

    with pytest.raises(Refused, match="in clear text"):
        ask_mysql(fake_mysql)

    assert fake_mysql.got == b""


@states(
    "A MySQL sink sends its password in clear text over TLS only, and never a file of this machine, whatever the "
    "server asks for."
)
def test_a_fake_mysql_server_gets_no_file(fake_mysql: FakeMySQL, tmp_path: Path) -> None:
    """Also if the URL allows LOAD DATA LOCAL."""
    secret = tmp_path / "secret"
    secret.write_text(PASSWORD)
    fake_mysql.file = str(secret).encode()

    for options in ("", "local_infile=1"):
        with pytest.raises((RuntimeError, OnlyonceError)):
            ask_mysql(fake_mysql, options)

    assert PASSWORD.encode() not in fake_mysql.got


class FakeBroker(FakeServer):
    """Take whatever comes, and offer the method PLAIN in plain text."""

    def _talk(self, client: socket.socket) -> None:
        client.settimeout(3)
        while message := client.recv(4096):
            self.got += message
            client.sendall(struct.pack("!iihih", 17, 0, 0, 1, 5) + b"PLAIN")


@states("A Kafka client whose settings say SASL_SSL sends no password to a broker without TLS.")
def test_a_fake_broker_gets_no_password() -> None:
    """It begins with TLS, and a broker that answers in plain text can't make it fall back."""
    broker = FakeBroker()
    stated = {
        "bootstrap.servers": f"127.0.0.1:{broker.port}", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "sink",
        "sasl.password": PASSWORD, "log_level": 0,
    }  # fmt: skip
    with pytest.raises(KafkaException):
        AdminClient(send_kafka.settings_of(json.dumps(stated))).list_topics(timeout=3)
    broker.close()

    assert broker.got[:1] == b"\x16"  # a handshake of TLS
    assert PASSWORD.encode() not in broker.got
