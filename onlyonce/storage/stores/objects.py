"""Objects of S3, GCS and ADLS behind the interface of stores, by obstore.

A PUT is whole or not there, and its answer is for good.

obstore asks again after a 500, a 503 and a dropped connection, with growing pauses, for as long as `PATIENCE`.
Consoles, Arrow and S3A mark a folder by an empty object whose key ends in `/`. obstore lists it without the slash, and
can neither read nor delete it: here it is none. Who calls it: `stores.of`. Errors: those of the interface. Not
promised: that an object which a role may not list is told from one that is not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import obstore
from obstore import exceptions
from obstore.store import from_url

from onlyonce.model import store_failures
from onlyonce.model.errors import Retryable
from onlyonce.model.storage.location import Location, Url
from onlyonce.storage.stores import Changed, Entry, options
from onlyonce.storage.stores.local import changed

if TYPE_CHECKING:
    from obstore.store import RetryConfig

PAGE = 1000
"""Objects of one answer to a listing: what S3 gives at most."""
AT_ONCE = 16
PATIENCE = timedelta(seconds=60)
GONE_AGAIN = 5
"""How often a PUT is tried while its object is there for the PUT, and not for the GET after it."""
DENIED = (PermissionError, exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
NO_CREDENTIALS = ("credential", "169.254.169.254")
"""What is in the error of a client that has found no key, and no role to ask for one."""


@dataclass(frozen=True)
class Objects:
    """The side of object stores. `retries`: how often a request is sent again at most."""

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
        """See the interface. The parts of an upload that was not ended are no objects, and a store has no folders."""
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
        try:
            with told(url):
                return _entry(url, obstore.head(self.bucket(url), url.key))
        except FileNotFoundError:
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
            if self.look(at) is None:  # of what is gone some stores say that the condition does not hold
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
            with suppress(FileNotFoundError):  # somebody removed it since, or still writes it
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
        with suppress(FileNotFoundError):  # no store that was tried copies an object onto itself without more
            self.put(at, self.read(at))

    def _no_markers(self, found: list[Entry]) -> list[Entry]:
        """Of some entries those that are objects by their names: a request for each that is empty."""
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
                # In one request: the parts of a longer upload would be put together without the condition.
                obstore.put(self.bucket(url), url.key, content, mode="create", use_multipart=False)
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                return False
        return True

    def bucket(self, at: Url) -> Any:
        """The client of a bucket."""
        return _made(at.root, options.plain_http(at), options.endpoint(), options.region(), self.retries)


def _url(at: Location) -> Url:
    assert isinstance(at, Url)
    return at


def _entry(at: Url, found: Any) -> Entry:
    etag = found["e_tag"] or found["version"] or ""
    # Azure's listings tell it without its quotes: one content has one ETag here, whoever tells it.
    return Entry(at, found["size"], f'"{etag.strip(chr(34))}"', found["last_modified"].timestamp())


@lru_cache(maxsize=32)
def _made(root: str, plain_http: bool, endpoint: str | None, region: str | None, retries: int) -> Any:
    """A client with its connections; another one where the variables say another place.

    Keys it reads itself, when it is made.
    """
    given = {"endpoint": endpoint, "region": region} if root.startswith("s3:") else {}
    more: dict[str, Any] = {key: value for key, value in given.items() if value}
    patience: RetryConfig = {"max_retries": retries, "retry_timeout": PATIENCE}
    return from_url(root, client_options={"allow_http": plain_http}, retry_config=patience, **more)


@contextmanager
def told(at: Url) -> Iterator[None]:
    """The errors of obstore as those of the interface. Their texts have URLs and answers of the store, and no key."""
    try:
        yield
    except FileNotFoundError as error:  # obstore's own word for an answer of 404
        # A bucket that is gone, or a key that nobody knows, is not "no object": whoever asks would take it for an empty
        # store.
        if _code(error) in (None, *store_failures.NO_OBJECT):
            raise FileNotFoundError(str(at)) from error
        raise store_failures.refused(_where(at, error), _code(error)) from error
    except exceptions.PreconditionError as error:
        raise changed(at) from error
    except DENIED as error:
        raise store_failures.refused(_where(at, error), _code(error)) from error
    except exceptions.GenericError as error:
        if _code(error) in store_failures.SHUT_OUT or any(mark in str(error).lower() for mark in NO_CREDENTIALS):
            raise store_failures.refused(_where(at, error), _code(error)) from error
        raise store_failures.away(at.root, str(error).splitlines()[0]) from error


def _where(at: Url, error: Exception) -> str:
    return str(at) if _code(error) in store_failures.NO_BUCKET else at.root


def _code(error: Exception) -> str | None:
    """What the store itself says is wrong."""
    found = re.search(r"<Code>(\w+)</Code>", str(error))
    return found[1] if found else None
