"""What Spark asks of Kubernetes is what docker/kubernetes/access.yaml permits.

A small HTTP server stands in the API's place and writes down each request.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyspark
import pytest
import yaml

from onlyonce.settings import ROOT

pytestmark = pytest.mark.spark

NAMESPACE = "onlyonce"
Request = tuple[str, str, str]
"""API group, resource, verb, as a Role has them."""
DRIVER = """
from pyspark import SparkContext

context = SparkContext()
open({pipe!r}).close()  # waits until the test opens it
context.stop()
"""


class Api(ThreadingHTTPServer):
    """Agrees to each request but to make resources of the kind `refuses`, and shows nothing.

    `asked`: the requests so far; `made`: the names of the owners of what was made and not deleted, by its name;
    `made_pod` is set once a pod was made.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.refuses: str | None = None
        self.asked: set[Request] = set()
        self.made: dict[str, set[str]] = {}
        self.made_pod = threading.Event()

    @property
    def left(self) -> list[str]:
        """What stays: Kubernetes deletes what has owners once they are deleted."""
        return [name for name, owners in self.made.items() if not owners or owners & self.made.keys()]

    @property
    def url(self) -> str:
        """The master as spark-submit takes it."""
        return f"k8s://http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Api

    def log_message(self, *_: object) -> None:
        """Stay silent."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        group, resource, name = _parts(url.path)
        watches = "true" in parse_qs(url.query).get("watch", [])
        listed = "list" if not name else "get"
        verbs = {
            "GET": ["watch"] if watches else [listed], "POST": ["create"], "PUT": ["update"],
            "PATCH": ["patch", "create"] if "force" in url.query else ["patch"],  # server-side apply needs both
            "DELETE": ["delete"] if name else ["deletecollection"],
        }[self.command]  # fmt: skip
        self.server.asked |= {(group, resource, verb) for verb in verbs}
        found: dict[str, Any] = (
            json.loads(body)
            if body and self.command != "DELETE"
            else {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": []}
        )
        if self.command in ("POST", "PATCH") and resource == self.server.refuses:
            self._send(
                403, json.dumps({"kind": "Status", "apiVersion": "v1", "code": 403, "reason": "Forbidden"}).encode()
            )
            return
        if self.command in ("POST", "PATCH"):
            owners = found["metadata"].get("ownerReferences", [])
            self.server.made[found["metadata"]["name"]] = {owner["name"] for owner in owners}
        if self.command == "DELETE":
            self.server.made.pop(name, None)
        if self.command == "POST":
            found["metadata"].update(uid="1", resourceVersion="1")
        if (resource, self.command) == ("pods", "POST"):
            self.server.made_pod.set()
        self._send(
            201 if self.command == "POST" else 404 if self.command == "GET" and name else 200,
            b"" if watches else json.dumps(found).encode(),
        )

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer


def _parts(path: str) -> tuple[str, str, str]:
    """Group, resource and name of a path such as /api/v1/namespaces/onlyonce/pods/one."""
    words = path.strip("/").split("/")
    group = "" if words[0] == "api" else words[1]
    assert "namespaces" in words, f"asked outside a namespace: {path}"
    resource, *name = words[words.index("namespaces") + 2 :]
    return group, resource, "/".join(name)


@pytest.fixture
def api() -> Iterator[Api]:
    """The server, as long as a test needs it."""
    with Api() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def permitted(role: str) -> set[Request]:
    """What a Role of access.yaml permits."""
    parts = yaml.safe_load_all((ROOT / "docker" / "kubernetes" / "access.yaml").read_text())
    [rules] = [part["rules"] for part in parts if part["kind"] == "Role" and part["metadata"]["name"] == role]
    return {(g, r, v) for rule in rules for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}


def submit(api: Api, mode: str, application: str, *conf: str) -> subprocess.CompletedProcess[str]:
    """Submit as the DAG's operator does."""
    settings = [f"spark.kubernetes.namespace={NAMESPACE}", "spark.kubernetes.container.image=none", *conf]
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", api.url, "--deploy-mode", mode]
    for setting in settings:
        command += ["--conf", setting]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    return subprocess.run([*command, application], env=environment, capture_output=True, text=True)


def test_spark_submit_asks_for_what_its_role_permits(api: Api) -> None:
    """In cluster mode.

    What it makes is among it: a driver's pod, its service, its configuration and a network policy.
    """
    done = submit(api, "cluster", "local:///none.py", "spark.kubernetes.submission.waitAppCompletion=false")

    assert done.returncode == 0, done.stderr[-3000:]
    assert {(group, resource) for group, resource, _ in api.asked} == {
        ("", "pods"), ("", "services"), ("", "configmaps"), ("networking.k8s.io", "networkpolicies"),
    }  # fmt: skip
    assert api.asked - permitted("onlyonce-submit") == set()


@pytest.mark.parametrize("kind", ["pods", "services", "configmaps", "networkpolicies"])
def test_submit_that_fails_leaves_nothing(api: Api, kind: str) -> None:
    """Spark deletes the driver's pod, which owns the rest."""
    api.refuses = kind
    done = submit(api, "cluster", "local:///none.py", "spark.kubernetes.submission.waitAppCompletion=false")

    assert done.returncode != 0
    assert api.left == [], f"{api.made}\n{done.stderr[-3000:]}"
    assert api.asked - permitted("onlyonce-submit") == set()


@pytest.mark.whole
def test_a_driver_asks_for_what_its_role_permits(api: Api, tmp_path: Path) -> None:
    """From its start to its end: it makes executors, follows them, and removes them."""
    application, pipe = tmp_path / "driver.py", tmp_path / "pipe"
    os.mkfifo(pipe)
    application.write_text(DRIVER.format(pipe=str(pipe)))

    def end() -> None:
        api.made_pod.wait()
        pipe.write_text("")

    threading.Thread(target=end, daemon=True).start()
    done = submit(
        api,
        "client",
        str(application),
        "spark.driver.host=127.0.0.1",
        "spark.ui.enabled=false",
        "spark.executor.instances=1",
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert ("", "pods", "create") in api.asked
    assert api.asked - permitted("onlyonce-driver") == set()
