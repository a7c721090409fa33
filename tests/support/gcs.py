"""A server of GCS on this machine: fake-gcs-server behind `tests/gcs_server`, built once by Go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx

from onlyonce import environment
from tests.support import go_programs
from tests.support.platform import ROOT, free_port
from tests.support.s3 import served

SOURCE = ROOT / "tests" / "gcs_server"
WHY = "the tests of GCS run against fake-gcs-server, which is Go"


@dataclass(frozen=True)
class Gcs:
    """A running server, and the file that says where it is, as a service account's key may."""

    url: str
    account: Path

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead obstore and delta-rs to it."""
        return {"GOOGLE_SERVICE_ACCOUNT": str(self.account), "STORAGE_EMULATOR_HOST": self.url}

    def bucket(self) -> str:
        """A new bucket; gives its URL."""
        name = f"b{uuid4().hex[:12]}"
        httpx.post(f"{self.url}/storage/v1/b", params={"project": "tests"}, json={"name": name}).raise_for_status()
        return f"gs://{name}"


@contextmanager
def served_by_go(folder: Path) -> Iterator[Gcs]:
    """A server that keeps all in memory. Skips without Go."""
    program, port = go_programs.built(SOURCE, WHY), free_port()
    account, url = folder / "account.json", f"http://127.0.0.1:{port}"
    account.write_text(
        json.dumps(
            {"gcs_base_url": url, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
        )
    )
    with served([str(program), "--listen", f"127.0.0.1:{port}"], port, environment.inherited()):
        yield Gcs(url, account)
