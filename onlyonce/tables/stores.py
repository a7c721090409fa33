"""Object stores and local disks behind one interface, and the options by which libraries reach a store."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import obstore
from obstore import exceptions
from obstore.store import from_url

from onlyonce.core import failures, stored_names
from onlyonce.core.errors import OnlyonceError, Retryable
from onlyonce.core.locations import Location, Url, is_s3
from onlyonce.environment import variable

if TYPE_CHECKING:
    from obstore.store import RetryConfig


def sync(path: Location) -> None:
    """fsync a file or directory. No-op for object stores: an object is durable once written. Raise OSError."""
    if not isinstance(path, Path):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# The options of an object store for each library. No secret is among them: delta-rs, obstore and Hadoop find secrets
# themselves.
#
# Each of them reads the standard variables (AWS_ACCESS_KEY_ID and its companions, AWS_ENDPOINT_URL, AWS_REGION;
# GOOGLE_APPLICATION_CREDENTIALS; AZURE_STORAGE_ACCOUNT_NAME, …) or asks for the machine's role. So no secret can get
# into a log, a table, or Spark's page. These options have what they would not find out: that an endpoint uses plain
# HTTP.
#
# Pure except for the environment.


ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
ON_DISK = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Spark's default starts four processes for each file that it writes to a disk, to set and read its permissions: 40 ms.
This one starts one: 10 ms. Both check whether the file exists, and then rename.
"""


def options_of_delta(at: Location) -> dict[str, str] | None:
    """Return the storage options of delta-rs; None for a local path."""
    if not isinstance(at, Url):
        return None
    given = {"aws_endpoint_url": store_endpoint(), "aws_region": store_region()} if is_s3(at) else {}
    return {key: value for key, value in given.items() if value} | ({"allow_http": "true"} if plain_http(at) else {})


def options_of_spark(at: Location) -> dict[str, str]:
    """Return the settings of a Spark session that has data there.

    S3A serves `s3://`, so that a table has one name for all its readers.
    """
    if not isinstance(at, Url):
        return {CHECKPOINTS: ON_DISK}
    if not is_s3(at):
        return {}
    found = {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
        "spark.hadoop.fs.AbstractFileSystem.s3a.impl": "org.apache.hadoop.fs.s3a.S3A",
        "spark.hadoop.fs.s3a.endpoint.region": store_region() or "us-east-1",
        # One PUT for a file of a checkpoint. Spark's default writes another file and renames it: twenty requests, and
        # no more atomic.
        CHECKPOINTS: "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager",
        "spark.hadoop.fs.s3a.performance.flags": "create,mkdir",
    }
    if named := store_endpoint():
        found |= {
            "spark.hadoop.fs.s3a.endpoint": named,
            "spark.hadoop.fs.s3a.path.style.access": "true",  # a self-hosted server seldom has a name for each bucket
            "spark.hadoop.fs.s3a.connection.ssl.enabled": str(not plain_http(at)).lower(),
        }
    return found


def store_endpoint() -> str | None:
    """Return the address of an S3 that is not Amazon's, or None."""
    return next((found for name in ENDPOINTS if (found := variable(name))), None)


def store_region() -> str | None:
    """Return the region of buckets; None if the library is to find out."""
    return next((found for name in REGIONS if (found := variable(name))), None)


def plain_http(at: Url) -> bool:
    """Return whether the store is used without TLS, as one on this machine is."""
    if at.scheme == "abfss":
        return (variable("AZURE_STORAGE_USE_EMULATOR") or "").lower() == "true"
    if at.scheme == "gs":  # the key file of the service account has the address
        return (variable("STORAGE_EMULATOR_HOST") or "").startswith("http://")
    return is_s3(at) and (store_endpoint() or "").startswith("http://")


# Files at a location: one interface for a local disk and for object stores.
#
# Object stores use `obstore`, the crate under delta-rs. So one client writes files and commits, with one set of
# variables. It has what everything here depends on: a PUT that is carried out only if the key does not exist.
# `pyarrow.fs` has no conditional PUT, no ETag, and no conditional range; it is used only where Arrow itself reads rows.
#
# Reads raise FileNotFoundError for a missing file. All raise Refused for a store that denies access, and Retryable for
# one that is unreachable. The order of two writers of `put` is undefined; use `put_new` where it matters.


class Changed(Retryable):
    """The content to read is no longer the listed one: its ETag has changed."""


@dataclass(frozen=True)
class Entry:
    """One file or object.

    `etag` is opaque: another one means different content. `modified`: seconds since 1970, by the store's clock.
    """

    at: Location
    bytes: int
    etag: str
    modified: float


class Store(Protocol):
    """A store of files. Only whole files are visible."""

    def entries(self, below: Location) -> Iterator[Entry]:
        """Yield all files below, at any depth, page by page, in no order."""

    def unfinished(self, below: Location) -> Iterator[Location]:
        """Yield what killed writers have left behind below, which no reader sees, and empty folders."""

    def names(self, at: Location) -> Iterator[str]:
        """Yield the names directly below, of files and of folders, in no order."""

    def look(self, at: Location) -> Entry | None:
        """Return the entry of a file; None if it does not exist."""

    def read(self, at: Location) -> bytes:
        """Return the whole content. Raise FileNotFoundError."""

    def read_range(self, at: Location, begin: int, end: int, etag: str) -> bytes:
        """Return the bytes from `begin` up to `end`, of this content.

        Raise Changed if the content is another, FileNotFoundError if there is none.
        """

    def tail(self, at: Location, length: int) -> tuple[Entry, bytes]:
        """Return the entry of a file and its last bytes; all bytes if it is shorter. Raise FileNotFoundError."""

    def put(self, at: Location, content: bytes) -> None:
        """Write a file and overwrite an existing one. It is durable when this returns."""

    def put_new(self, at: Location, content: bytes) -> bool:
        """Write a file only if none exists; return False if one does. If several writers try at once, one succeeds.

        If the answer is lost, the file is read: if it has these bytes, it counts as ours. So writers that must know
        which of them succeeded write different bytes.
        """

    def delete(self, at: Location) -> None:
        """Delete a file. A missing one is not an error."""

    def delete_all(self, below: Location, names: Sequence[str]) -> None:
        """Delete files with these names directly below, in few requests. If one is missing, others may stay."""

    def clear(self, below: Location) -> None:
        """Delete the location and all that is below, at any depth, with the folders.

        A missing location is not an error. After a kill a part remains, in no order.
        """

    def renew(self, at: Location) -> None:
        """Set the modification time to now; the content stays.

        A missing file is not an error. An object is written again as a whole.
        """


def of(at: Location) -> Store:
    """Return the store of a location."""
    if isinstance(at, Path):
        return LocalFiles()

    return Objects()


def anything(below: Location) -> bool:
    """Return whether anything is at or below a location."""
    return any(True for _ in of(below).entries(below))


# Files of a local disk behind the interface of stores.
#
# The ETag identifies a content: inode, size and time of change. Folders that become empty may stay.


PARTIAL = stored_names.PARTIAL_SUFFIX
"""A file with this suffix does not have its final name yet. A killed writer leaves it; no reader uses it."""


class LocalFiles:
    """Files of a local disk."""

    def entries(self, below: Location) -> Iterator[Entry]:
        """See the interface."""
        for folder, _, names in os.walk(_path(below)):
            for name in names:
                if not name.endswith(PARTIAL) and (entry := self.look(Path(folder, name))):
                    yield entry

    def unfinished(self, below: Location) -> Iterator[Location]:
        """See the interface."""
        for folder, folders, names in os.walk(_path(below), topdown=False):
            yield from (Path(folder, name) for name in names if name.endswith(PARTIAL))
            if not folders and not names:
                yield Path(folder)

    def names(self, at: Location) -> Iterator[str]:
        """See the interface."""
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(_path(at)) as found:
            yield from (one.name for one in found if not one.name.endswith(PARTIAL))

    def look(self, at: Location) -> Entry | None:
        """See the interface."""
        with suppress(FileNotFoundError, NotADirectoryError):
            stat = _path(at).stat()
            return Entry(at, stat.st_size, _etag(stat), stat.st_mtime) if _path(at).is_file() else None
        return None

    def read(self, at: Location) -> bytes:
        """See the interface."""
        return _path(at).read_bytes()

    def read_range(self, at: Location, begin: int, end: int, etag: str) -> bytes:
        """See the interface."""
        with _path(at).open("rb") as file:
            file.seek(begin)
            found = file.read(end - begin)
            # Checked last: a file that was overwritten while it was read has another ETag now.
            if _etag(os.fstat(file.fileno())) != etag:
                raise changed(at)
        return found

    def tail(self, at: Location, length: int) -> tuple[Entry, bytes]:
        """See the interface."""
        with _path(at).open("rb") as file:
            stat = os.fstat(file.fileno())
            file.seek(max(stat.st_size - length, 0))
            return Entry(at, stat.st_size, _etag(stat), stat.st_mtime), file.read()

    def put(self, at: Location, content: bytes) -> None:
        """See the interface."""
        partial = _partial(_path(at), content)
        partial.replace(_path(at))
        sync(_path(at).parent)

    def put_new(self, at: Location, content: bytes) -> bool:
        """See the interface."""
        partial = _partial(_path(at), content)
        try:
            os.link(partial, _path(at))
        except FileExistsError:
            return _path(at).read_bytes() == content
        finally:
            partial.unlink()
        sync(_path(at).parent)
        return True

    def delete(self, at: Location) -> None:
        """See the interface."""
        _path(at).unlink(missing_ok=True)

    def delete_all(self, below: Location, names: Sequence[str]) -> None:
        """See the interface."""
        for name in names:
            self.delete(below / name)

    def clear(self, below: Location) -> None:
        """See the interface."""
        if _path(below).is_dir():
            shutil.rmtree(_path(below), onerror=_unless_gone)
        else:
            self.delete(below)

    def renew(self, at: Location) -> None:
        """See the interface."""
        with suppress(FileNotFoundError):
            os.utime(_path(at))


def changed(at: Location) -> Changed:
    """Return the error for a file that has changed since it was listed."""
    return Changed(
        f"{at} has changed since it was listed", data="nothing of it was taken", hint="run the same command again"
    )


def _unless_gone(_: Any, __: str, told: tuple[Any, BaseException, Any]) -> None:
    if not isinstance(told[1], FileNotFoundError):
        raise told[1]


def _partial(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid4().hex}{PARTIAL}")
    partial.write_bytes(content)
    sync(partial)
    return partial


def _path(at: Location) -> Path:
    assert isinstance(at, Path)
    return at


def _etag(stat: Any) -> str:
    return f"{stat.st_ino:x}-{stat.st_size:x}-{stat.st_mtime_ns:x}"


# Objects of S3, GCS and ADLS behind the interface of stores, by obstore.
#
# A PUT is atomic, and durable once it is answered.
#
# obstore repeats a request after a 500, a 503 and a dropped connection, with growing pauses, for as long as `PATIENCE`.
# Consoles, Arrow and S3A mark a folder by an empty object whose key ends in `/`. obstore lists this object without the
# slash, and can neither read nor delete it. So it is ignored here. An object that the role may not list can't be
# distinguished from a missing one.


PAGE = 1000
"""Objects of one answer to a listing: the most that S3 returns."""
AT_ONCE = 16
PATIENCE = timedelta(seconds=60)
GONE_AGAIN = 5
"""How often a PUT is tried while its object exists for the PUT, and not for the GET after it."""
DENIED = (PermissionError, exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
NO_CREDENTIALS = ("credential", "169.254.169.254")
"""Marks in the error of a client that has found neither a key nor a role to ask for one."""


@dataclass(frozen=True)
class Objects:
    """Object stores. `retries`: how often a request is sent again at most."""

    retries: int = 10

    def entries(self, below: Location) -> Iterator[Entry]:
        """See the interface."""
        url = _url(below)
        with told(url):
            for page in obstore.list(self.bucket(url), url.key or None, chunk_size=PAGE):
                yield from self._no_markers(
                    [_entry(Url(url.root, one["path"]), one) for one in page if one["path"] != url.key]
                )

    def unfinished(self, below: Location) -> Iterator[Location]:
        """See the interface. Parts of an unfinished upload are not objects, and a store has no folders."""
        yield from ()

    def names(self, at: Location) -> Iterator[str]:
        """See the interface."""
        url = _url(at)
        with told(url):
            found = obstore.list_with_delimiter(self.bucket(url), url.key or None)
        yield from (Url(url.root, one["path"]).name for one in found["objects"] if one["path"] != url.key)
        yield from (Url(url.root, prefix).name for prefix in found["common_prefixes"])

    def look(self, at: Location) -> Entry | None:
        """See the interface."""
        url = _url(at)
        with suppress(FileNotFoundError, OnlyonceError), told(url):
            return _entry(url, obstore.head(self.bucket(url), url.key))
        # The answer to a HEAD has no body. Only that to a GET says why access is denied, or that the bucket is missing.
        with suppress(FileNotFoundError), told(url):
            return _entry(url, obstore.get(self.bucket(url), url.key).meta)
        return None

    def read(self, at: Location) -> bytes:
        """See the interface."""
        url = _url(at)
        with told(url):
            return bytes(obstore.get(self.bucket(url), url.key).bytes())

    def read_range(self, at: Location, begin: int, end: int, etag: str) -> bytes:
        """See the interface."""
        url = _url(at)
        try:
            with told(url):
                found = obstore.get(self.bucket(url), url.key, options={"range": (begin, end), "if_match": etag})
                return bytes(found.bytes())
        except Changed:
            if self.look(at) is None:  # for a missing object some stores say that the condition does not hold
                raise FileNotFoundError(str(at)) from None
            raise

    def tail(self, at: Location, length: int) -> tuple[Entry, bytes]:
        """See the interface."""
        url = _url(at)
        if url.scheme == "abfss":  # it has no ranges from the end
            entry = self.look(at)
            if entry is None:
                raise FileNotFoundError(str(at))
            return entry, self.read_range(
                at, max(entry.bytes - length, 0), entry.bytes, entry.etag
            ) if entry.bytes else b""
        with told(url):
            found = obstore.get(self.bucket(url), url.key, options={"range": {"suffix": length}})
            return _entry(url, found.meta), bytes(found.bytes())

    def put(self, at: Location, content: bytes) -> None:
        """See the interface."""
        url = _url(at)
        with told(url):
            obstore.put(self.bucket(url), url.key, content)

    def put_new(self, at: Location, content: bytes) -> bool:
        """See the interface."""
        for _ in range(GONE_AGAIN):
            if self._put_if_absent(_url(at), content):
                return True
            with suppress(FileNotFoundError):  # it was removed since, or is still being written
                return self.read(at) == content
        raise Retryable(
            f"{at} is there when it is to be put, and is not when it is read",
            data="nothing was written",
            hint="run the same command again; if it stays so, find out who writes and removes that object",
        )

    def delete(self, at: Location) -> None:
        """See the interface."""
        url = _url(at)
        try:
            with told(url):
                obstore.delete(self.bucket(url), url.key)
        except FileNotFoundError:
            pass

    def delete_all(self, below: Location, names: Sequence[str]) -> None:
        """See the interface."""
        urls = [_url(below / name) for name in names]
        with suppress(FileNotFoundError), told(_url(below)):
            obstore.delete(self.bucket(urls[0]), [url.key for url in urls])

    def clear(self, below: Location) -> None:
        """See the interface."""
        url = _url(below)
        if url.key:
            self.delete(url)
        with told(url):
            for page in obstore.list(self.bucket(url), url.key or None, chunk_size=PAGE):
                obstore.delete(self.bucket(url), [one["path"] for one in page])

    def renew(self, at: Location) -> None:
        """See the interface."""
        with suppress(FileNotFoundError):  # no tested store copies an object onto itself without more
            self.put(at, self.read(at))

    def _no_markers(self, found: list[Entry]) -> list[Entry]:
        """Return the entries that are objects by their names. This takes a request for each empty one."""
        empty = {one.at: one for one in found if not one.bytes}
        if not empty:
            return found
        with ThreadPoolExecutor(min(len(empty), AT_ONCE)) as pool:
            looks = list(pool.map(self.look, empty))
        return [one for one in found if one.bytes] + [
            one for one, there in zip(empty.values(), looks, strict=True) if there and not there.bytes
        ]

    def _put_if_absent(self, url: Url, content: bytes) -> bool:
        with told(url):
            try:
                # In one request: the parts of a longer upload would be joined without the condition.
                obstore.put(self.bucket(url), url.key, content, mode="create", use_multipart=False)
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                return False
        return True

    def bucket(self, at: Url) -> Any:
        """Return the client of a bucket."""
        return _made(at.root, plain_http(at), store_endpoint(), store_region(), self.retries)


def _url(at: Location) -> Url:
    assert isinstance(at, Url)
    return at


def _entry(at: Url, found: Any) -> Entry:
    etag = found["e_tag"] or found["version"] or ""
    # Azure's listings have it without quotes: here one content has one ETag, from whichever request.
    return Entry(at, found["size"], f'"{etag.strip(chr(34))}"', found["last_modified"].timestamp())


@lru_cache(maxsize=32)
def _made(root: str, plain_http: bool, endpoint: str | None, region: str | None, retries: int) -> Any:
    """Return a client with its connections; a new one if the variables have changed.

    The client reads the keys itself, when it is made.
    """
    given = {"endpoint": endpoint, "region": region} if root.startswith("s3:") else {}
    more: dict[str, Any] = {key: value for key, value in given.items() if value}
    patience: RetryConfig = {"max_retries": retries, "retry_timeout": PATIENCE}
    return from_url(root, client_options={"allow_http": plain_http}, retry_config=patience, **more)


@contextmanager
def told(at: Url) -> Iterator[None]:
    """Raise the errors of obstore as the interface's errors. They hold URLs and the store's answers, no credentials."""
    try:
        yield
    except FileNotFoundError as error:  # obstore's own error for a 404
        # A missing bucket or an unknown key is not "no object": the caller would take it for an empty store.
        if _code(error) in (None, *failures.NO_OBJECT):
            raise FileNotFoundError(str(at)) from error
        raise failures.store_refused(_where(at, error), _code(error)) from error
    except exceptions.PreconditionError as error:
        raise changed(at) from error
    except DENIED as error:
        raise failures.store_refused(_where(at, error), _code(error)) from error
    except exceptions.GenericError as error:
        if _code(error) in failures.SHUT_OUT or any(mark in str(error).lower() for mark in NO_CREDENTIALS):
            raise failures.store_refused(_where(at, error), _code(error)) from error
        raise failures.store_away(at.root, str(error).splitlines()[0]) from error


def why_denied(at: Location) -> OnlyonceError:
    """Return why a store denies an object, by the answer to a request of our own."""
    try:
        of(at).look(at)
    except OnlyonceError as error:
        return error
    return failures.store_refused(str(at), None)


def _where(at: Url, error: Exception) -> str:
    return str(at) if _code(error) in failures.NO_BUCKET else at.root


def _code(error: Exception) -> str | None:
    """Return the error code in the store's answer, or None."""
    found = re.search(r"<Code>(\w+)</Code>", str(error))
    return found[1] if found else None
