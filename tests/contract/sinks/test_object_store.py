"""Sharded files where no rename is atomic: a local S3 server, and fsspec. The log and a manifest say what is final."""

from __future__ import annotations

import gc
import json
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyarrow import fs

from onlyonce import failpoints
from onlyonce.core.errors import InvariantBroken
from onlyonce.database.statements import make_home
from onlyonce.failpoints import FailPoint
from onlyonce.local.processes import wait_until
from onlyonce.sinks.files import file_stores, finalize, sweep
from onlyonce.sinks.files.file_stores import _open, store_of
from tests.contract.conftest import Log
from tests.contract.shards import Shards, sales, wanted
from tests.support.platform import free_port

ALL = sales(5) + sales(3, minute=1)


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of an S3 server on this machine, in a process of its own: pyarrow may hold this one while it
    waits."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        wait_until(lambda: _answers(port), 120, "the S3 server")
        yield f"127.0.0.1:{port}"
    server.terminate()
    server.wait(30)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(params=["s3", "variables", "memory"])
def shop(request: pytest.FixtureRequest, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shards:
    """An output with a file sink in a store: S3 behind pyarrow.fs, by options of the URL or by the standard variables;
    memory behind fsspec."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    make_home()
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    bucket = f"b{uuid4().hex[:8]}"
    if request.param == "memory":
        place = f"memory://{bucket}/sales"
    else:
        address = request.getfixturevalue("s3")
        options = f"endpoint_override={address}&scheme=http&region=us-east-1&allow_bucket_creation=true"
        place = f"s3://{bucket}/sales?{options}"
        system, root = fs.FileSystem.from_uri(place)
        system.create_dir(root.split("/")[0])
        if request.param == "variables":
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{address}")
            monkeypatch.setenv("AWS_REGION", "us-east-1")
            place = f"s3://{bucket}/sales"
    return Shards(log, log.start("shop", "sales"), place=place)


def store(shop: Shards) -> tuple[Any, str]:
    """The file system and its root."""
    return _open(shop.place)


def listed(shop: Shards, folder: str) -> list[str]:
    """The names in a folder of the store."""
    system, root = store(shop)
    found = system.get_file_info(fs.FileSelector(f"{root}/{folder}", allow_not_found=True))
    return sorted(info.base_name for info in found)


def read(shop: Shards) -> Counter[str]:
    """The lines that a reader finds who goes by the manifests."""
    system, root = store(shop)
    lines: Counter[str] = Counter()
    for name in listed(shop, "_manifests"):
        manifest = json.loads(system.open_input_stream(f"{root}/_manifests/{name}").read())
        for file in manifest["files"]:
            lines.update(system.open_input_stream(f"{root}/{file['object']}").read().decode().splitlines())
    return lines


def test_a_manifest_for_each_pane_names_its_files_and_no_others(shop: Shards) -> None:
    """Written once all files were found; orphans of lost attempts are in none; twice makes no difference."""
    shop.batch(0, ALL)
    orphan = listed(shop, "parts")[0].split(".")
    orphan[2] = f"{'0' * 32}-0"
    system, root = store(shop)
    with system.open_output_stream(f"{root}/parts/{'.'.join(orphan)}") as file:
        file.write(b'{"id": "half"}\n')
    assert read(shop) == Counter()

    assert finalize.main([]).facts == {"files": 8}
    assert finalize.main([]).facts == {"files": 0}

    assert read(shop) == wanted(*ALL)
    assert len(listed(shop, "_manifests")) == 2
    assert shop.log.multiset("SELECT state FROM onlyonce.output_files") == Counter({("final",): 8})
    swept = sweep.sweep(shop.log.database, {}, 0)
    assert [row["temporary"] for row in swept.tables["orphans"]] == [".".join(orphan)]
    assert len(listed(shop, "parts")) == 8
    assert read(shop) == wanted(*ALL)


def test_what_is_missing_or_was_changed_is_an_error(shop: Shards) -> None:
    """An object that went, one with other content, a manifest of somebody else's."""
    shop.batch(0, sales(5))
    system, root = store(shop)
    name = f"{root}/parts/{listed(shop, 'parts')[0]}"
    content = system.open_input_stream(name).read()
    system.delete_file(name)
    with pytest.raises(InvariantBroken, match="does not exist"):
        finalize.main([])
    put(system, name, content + b"more")
    with pytest.raises(InvariantBroken, match="should have"):
        finalize.main([])
    put(system, name, content)
    assert listed(shop, "_manifests") == []
    finalize.main([])
    assert read(shop) == wanted(*sales(5))

    shop.batch(1, sales(2, minute=1))
    manifest = listed(shop, "_manifests")[0].replace("T120000Z-20260301T120100Z", "T120100Z-20260301T120200Z")
    put(system, f"{root}/_manifests/{manifest}", b"{}")
    with pytest.raises(InvariantBroken, match="its content differs"):
        finalize.main([])
    assert system.open_input_stream(f"{root}/_manifests/{manifest}").read() == b"{}"


@pytest.mark.parametrize("shop", ["variables"], indirect=True)
def test_manifest_of_another_writer_at_the_same_time_stays(shop: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written between the look for a manifest and the PUT."""
    shop.batch(0, sales(5))
    system, root = store(shop)
    names: list[str] = []

    def write(url: str, manifest: str, *given: Any, **options: Any) -> None:
        names.append(f"{root}/{file_stores.MANIFESTS}/{manifest}")
        put(system, names[-1], b"{}")
        written(url, manifest, *given, **options)

    written = file_stores._put
    monkeypatch.setattr(file_stores, "_put", write)
    with pytest.raises(InvariantBroken, match="its content differs"):
        finalize.main([])
    assert [system.open_input_stream(name).read() for name in names] == [b"{}"]


def test_a_half_written_manifest_is_written_again(shop: Shards) -> None:
    """The finalizer was killed on a store whose writes are not atomic: what is there is the beginning of what the log
    says."""
    shop.batch(0, sales(5))
    finalize.main([])
    [name] = listed(shop, "_manifests")
    system, root = store(shop)
    whole = system.open_input_stream(f"{root}/_manifests/{name}").read()
    shop.log.rows("UPDATE onlyonce_private.files SET finalized_at = NULL")
    for half in (b"", whole[: len(whole) // 2]):
        put(system, f"{root}/_manifests/{name}", half)
        shop.log.rows("UPDATE onlyonce_private.files SET finalized_at = NULL")
        assert finalize.main([]).facts == {"files": 4}
        assert system.open_input_stream(f"{root}/_manifests/{name}").read() == whole


def test_where_a_finalizer_ends_does_not_show(shop: Shards, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a pane, at each step; the same command ends it."""
    monkeypatch.setenv("ONLYONCE_FAILPOINT_DIR", str(tmp_path))
    written: list[Any] = []
    for number, step in enumerate(
        ("before-link", "after-rename", "before-manifest", "after-manifest", "before-mark", "after-mark")
    ):
        written += sales(5, minute=number)
        shop.batch(number, sales(5, minute=number))
        with monkeypatch.context() as armed:
            armed.setattr(failpoints, "_POINTS", {f"finalize-{step}": (1, "raise")})
            with pytest.raises(FailPoint):
                finalize.main([])
        finalize.main([])
        assert read(shop) == wanted(*written), step
    assert shop.log.multiset("SELECT state FROM onlyonce.output_files") == Counter({("final",): 24})


def test_after_an_error_in_its_block_no_file_is_there(shop: Shards, tmp_path: Path) -> None:
    """Not the half of it either, also once Python has closed what was forgotten."""

    def broken(made: Any) -> None:
        with made.create("half") as file:
            file.write(b"some")
            raise ValueError("broken")

    for place in (shop.place, str(tmp_path)):
        with pytest.raises(ValueError, match="broken"):
            broken(store_of(place))
        gc.collect()
    assert (listed(shop, "parts"), list(tmp_path.rglob("half"))) == ([], [])


def put(system: Any, name: str, content: bytes) -> None:
    """An object, in the place of what is there."""
    with system.open_output_stream(name) as file:
        file.write(content)


def test_a_store_that_pyarrow_does_not_know_is_opened_by_fsspec() -> None:
    """The control of the parameter above."""
    assert isinstance(_open("memory://some/place")[0], fs.PyFileSystem)
