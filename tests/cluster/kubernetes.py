"""The API of Kubernetes for Spark, and what a node does with a pod, on this machine.

No control plane runs here: a small HTTP server keeps what is made and reports it as the API does, by list and by watch.
A pod is real: its container is a process of docker/kubernetes/entrypoint.sh, with the variables, secrets and mounted
files that its description names. So a driver and its executors are Spark's own, and only what lies between them and
their processes is ours.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from onlyonce.settings import ROOT

NAMESPACE = "onlyonce"
CREATED = "2026-01-01T00:00:00Z"
SERVICE = re.compile(r"[\w-]+-driver-svc\.[\w-]+\.svc")
Request = tuple[str, str, str]
"""API group, resource, verb, as a Role has them."""


@dataclass
class Node:
    """Where pods run. `secrets`: the variables of each Secret, by its name; `folder`: of mounted files and logs."""

    folder: Path
    secrets: Mapping[str, Mapping[str, str]]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def log(self, pod: str) -> str:
        """What a pod has printed."""
        return (self.folder / f"{pod}.log").read_text(errors="replace")

    def start(self, pod: Mapping[str, Any], maps: Mapping[str, Any]) -> subprocess.Popen[bytes]:
        """Start the container of a pod; `maps`: the ConfigMaps of the namespace."""
        name, [container] = pod["metadata"]["name"], pod["spec"]["containers"]
        mounted = self._mounted(pod, container, maps)
        variables = {
            key: value
            for one in container.get("envFrom", [])
            for key, value in self.secrets.get(one["secretRef"]["name"], {}).items()
        }
        fields = {"status.podIP": "127.0.0.1", "metadata.name": name}
        for one in container.get("env", []):
            source = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            variables[one["name"]] = fields[source] if source else _here(one.get("value", ""), mounted)
        java = Path(shutil.which("java") or "java").resolve().parents[1]
        image = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "JAVA_HOME": str(java),
            "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "HOME": str(self.folder),
        }  # fmt: skip
        arguments = [_here(one, mounted) for one in container["args"]]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                ["sh", str(ROOT / "docker" / "kubernetes" / "entrypoint.sh"), *arguments],
                env=image | variables, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        return self.processes[name]

    def kill(self, pod: str) -> None:
        """End the processes of a pod by SIGKILL."""
        if (process := self.processes.get(pod)) and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)

    def _mounted(self, pod: Mapping[str, Any], container: Mapping[str, Any], maps: Mapping[str, Any]) -> dict[str, str]:
        """Make the folders and files that a container mounts; return where each path of it is here."""
        volumes = {one["name"]: one for one in pod["spec"].get("volumes", [])}
        here: dict[str, str] = {}
        for mount in container.get("volumeMounts", []):
            if mount["mountPath"] != "/tmp":
                folder = self.folder / pod["metadata"]["name"] / mount["name"]
                folder.mkdir(parents=True)
                here[mount["mountPath"]] = str(folder)
        for mount in container.get("volumeMounts", []):
            if found := volumes[mount["name"]].get("configMap"):
                names = {one["key"]: one["path"] for one in found.get("items", [])}
                for key, text in maps[found["name"]].get("data", {}).items():
                    if not names or key in names:
                        place = Path(here[mount["mountPath"]], names.get(key, key))
                        place.write_text(_here(text, here))
        return here


def _here(text: str, mounted: Mapping[str, str]) -> str:
    """Put the paths and the address of this machine in the place of the container's and the service's."""
    for there, here in mounted.items():
        text = text.replace(there, here)
    return SERVICE.sub("127.0.0.1", text)


class Api(ThreadingHTTPServer):
    """Keeps what is made, and shows it. Without a node each pod waits to be scheduled, as in a full cluster.

    `asked`: the requests so far; `refuses`: the kind of resource that is not made any more, as by a quota; `made_pod`
    is set once a pod was made.
    """

    daemon_threads = True

    def __init__(self, node: Node | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.node = node
        self.refuses: str | None = None
        self.asked: set[Request] = set()
        self.made: dict[str, dict[str, dict[str, Any]]] = {}
        """What is there, by resource and name."""
        self.made_pod = threading.Event()
        self.changes: list[dict[str, Any]] = []
        """The events of all watches of pods; the place of each, from 1 on, is its version."""
        self.changed = threading.Condition(threading.RLock())

    @property
    def left(self) -> list[str]:
        """The names of what stays: what has owners goes with them."""
        there = {name: one for made in self.made.values() for name, one in made.items()}
        return [name for name, one in there.items() if not _owners(one) or _owners(one) & there.keys()]

    @property
    def url(self) -> str:
        """The master as spark-submit takes it."""
        return f"k8s://http://127.0.0.1:{self.server_port}"

    def pods(self, role: str) -> list[str]:
        """The names of the running pods of one of Spark's roles."""
        with self.changed:
            return [
                name
                for name, pod in self.made.get("pods", {}).items()
                if pod["metadata"]["labels"].get("spark-role") == role and pod["status"]["phase"] == "Running"
            ]

    def since(self, version: int) -> list[dict[str, Any]]:
        """Wait for changes of pods after a version; return them, or none after some seconds."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.changes) > version, 5)
            return self.changes[version:]

    def make(self, resource: str, found: dict[str, Any]) -> None:
        """Keep what is made; a pod starts if there is a node."""
        with self.changed:
            name = found["metadata"]["name"]
            found["metadata"] |= {"uid": name, "creationTimestamp": CREATED, "namespace": NAMESPACE}
            self.made.setdefault(resource, {})[name] = found
            if resource != "pods":
                return
            self.made_pod.set()
            found["status"] = {"phase": "Pending", "containerStatuses": []}
            self._report("ADDED", found)
            if self.node:
                # The ConfigMap of a driver is made after its pod, which waits for it as on a real node.
                threading.Thread(target=self._live, args=(name, found), daemon=True).start()

    def delete(self, resource: str, name: str) -> None:
        """Delete one thing with what it owns; the process of a pod ends by SIGKILL."""
        with self.changed:
            found = self.made.get(resource, {}).pop(name, None)
            owned = [
                (kind, key) for kind, made in self.made.items() for key, one in made.items() if name in _owners(one)
            ]
        if found and resource == "pods":
            if self.node:
                self.node.kill(name)
            with self.changed:
                self._report("DELETED", found)
        for kind, key in owned:
            self.delete(kind, key)

    def _live(self, name: str, pod: dict[str, Any]) -> None:
        """Follow a pod from its start to its end."""
        assert self.node
        needed = {v["configMap"]["name"] for v in pod["spec"].get("volumes", []) if "configMap" in v}
        with self.changed:
            self.changed.wait_for(lambda: needed <= self.made.get("configmaps", {}).keys(), 60)
            process = self.node.start(pod, self.made.get("configmaps", {}))
            self._is(pod, "Running", {"running": {"startedAt": CREATED}})
        code = process.wait()
        with self.changed:
            ended = {"terminated": {"exitCode": code if code >= 0 else 128 - code, "finishedAt": CREATED}}
            self._is(pod, "Failed" if code else "Succeeded", ended)

    def _is(self, pod: dict[str, Any], phase: str, state: dict[str, Any]) -> None:
        container = pod["spec"]["containers"][0]
        pod["status"] = {
            "phase": phase, "podIP": "127.0.0.1", "startTime": CREATED,
            "conditions": [{"type": "Ready", "status": str("running" in state)}],
            "containerStatuses": [
                {"name": container["name"], "image": "none", "imageID": "none", "containerID": "none", "ready": True,
                 "restartCount": 0, "state": state}
            ],
        }  # fmt: skip
        if pod["metadata"]["name"] in self.made["pods"]:
            self._report("MODIFIED", pod)

    def _report(self, kind: str, pod: dict[str, Any]) -> None:
        pod["metadata"]["resourceVersion"] = str(len(self.changes) + 1)
        self.changes.append({"type": kind, "object": copy.deepcopy(pod)})
        self.changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Api

    def log_message(self, *_: object) -> None:
        """Stay silent."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        group, resource, name = _parts(url.path)
        watches = query.get("watch") == "true"
        verbs = {
            "GET": ["watch"] if watches else ["get" if name else "list"], "POST": ["create"], "PUT": ["update"],
            "PATCH": ["patch", "create"] if "force" in url.query else ["patch"],  # server-side apply needs both
            "DELETE": ["delete"] if name else ["deletecollection"],
        }[self.command]  # fmt: skip
        self.server.asked |= {(group, resource, verb) for verb in verbs}
        if watches:
            self._watch(resource, name, query)
        elif self.command == "GET":
            self._show(resource, name, query)
        elif self.command == "DELETE":
            self._delete(resource, name, query)
        elif resource == self.server.refuses and self.command in ("POST", "PATCH"):
            self._send(403, _status(403, "Forbidden"))
        else:
            self._make(resource, name, json.loads(body))

    def _make(self, resource: str, name: str, found: dict[str, Any]) -> None:
        with self.server.changed:
            if there := self.server.made.get(resource, {}).get(name):
                there["metadata"] |= {key: found["metadata"][key] for key in ("labels", "annotations", "ownerReferences") if key in found["metadata"]}  # fmt: skip
                return self._send(200, there)
            self.server.make(resource, found)
            self.server.changed.notify_all()
            self._send(201, found)

    def _show(self, resource: str, name: str, query: Mapping[str, str]) -> None:
        with self.server.changed:
            made = self.server.made.get(resource, {})
            if name:
                return self._send(200, made[name]) if name in made else self._send(404, _status(404, "NotFound"))
            items = [one for one in made.values() if _matches(one, query)]
            version = {"resourceVersion": str(len(self.server.changes))}
            self._send(200, {"apiVersion": "v1", "kind": "List", "metadata": version, "items": items})

    def _delete(self, resource: str, name: str, query: Mapping[str, str]) -> None:
        with self.server.changed:
            made = self.server.made.get(resource, {})
            chosen = [name] if name else [key for key, one in made.items() if _matches(one, query)]
        for one in chosen:
            self.server.delete(resource, one)
        self._send(200, _status(200, "Success"))

    def _watch(self, resource: str, name: str, query: Mapping[str, str]) -> None:
        """Report each change since the version that the client knows, until the client or the server goes.

        A client that asks for a WebSocket is refused, and then asks by plain HTTP.
        """
        if "websocket" in self.headers.get("Upgrade", "").lower():
            return self._send(200, {})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if name or "metadata.name" in query.get("fieldSelector", ""):
            name = name or query["fieldSelector"].partition("=")[2]
        at = int(query.get("resourceVersion") or 0)
        try:
            while self.server.node:
                news = self.server.since(at)
                at += len(news)
                for one in news:
                    found = one["object"]
                    if resource == "pods" and (not name or found["metadata"]["name"] == name) and _matches(found, query):  # fmt: skip
                        self._chunk(json.dumps(one).encode() + b"\n")
            self._chunk(b"")
        except OSError:  # the client has gone
            self.close_connection = True

    def _chunk(self, body: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
        self.wfile.flush()

    def _send(self, status: int, found: Mapping[str, Any]) -> None:
        body = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer


def _owners(one: Mapping[str, Any]) -> set[str]:
    return {owner["name"] for owner in one["metadata"].get("ownerReferences", [])}


def _status(code: int, reason: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": f"{reason}: by this test"}


def _matches(found: Mapping[str, Any], query: Mapping[str, str]) -> bool:
    """Whether a label selector chooses it: `a=b`, `a!=b`, `a in (b, c)`, `a notin (b)`, `a`, `!a`."""
    labels = found["metadata"].get("labels", {})
    for part in re.split(r",(?![^(]*\))", query.get("labelSelector", "")):
        if not part:
            continue
        if among := re.fullmatch(r"(\S+) (in|notin) \((.*)\)", part):
            values = [value.strip() for value in among[3].split(",")]
            if (labels.get(among[1]) in values) != (among[2] == "in"):
                return False
        elif "!=" in part:
            key, value = part.split("!=")
            if labels.get(key) == value:
                return False
        elif "=" in part:
            key, _, value = part.replace("==", "=").partition("=")
            if labels.get(key) != value:
                return False
        elif (part.lstrip("!") in labels) == part.startswith("!"):
            return False
    return True


def _parts(path: str) -> tuple[str, str, str]:
    """Group, resource and name of a path such as /api/v1/namespaces/onlyonce/pods/one."""
    words = path.strip("/").split("/")
    group = "" if words[0] == "api" else words[1]
    assert "namespaces" in words, f"asked outside a namespace: {path}"
    resource, *name = words[words.index("namespaces") + 2 :]
    return group, resource, "/".join(name)


@contextmanager
def api(node: Node | None = None) -> Iterator[Api]:
    """Run the server; at the end no pod of it runs on."""
    with Api(node) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            for pod in node.processes if node else ():
                node.kill(pod)  # type: ignore[union-attr]
            server.node = None
            server.shutdown()
            thread.join()
