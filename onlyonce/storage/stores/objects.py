"""Objects of S3, GCS and ADLS behind the interface of stores, by obstore. A PUT is whole or not there, and its answer is for good.

obstore asks again after a 500, a 503 and a dropped connection, with growing pauses, for as long as `PATIENCE`.
Who calls it: `stores.of`. Errors: those of the interface. Not promised: that an object which a role may not list is told from one that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any

import obstore
from obstore import exceptions
from obstore.store import from_url

from onlyonce.model.errors import Refused, Retryable
from onlyonce.model.location import Location, Url
from onlyonce.storage.stores import Entry, options
from onlyonce.storage.stores.local import changed

PAGE = 1000
"""Objects of one answer to a listing: what S3 gives at most."""
PATIENCE = timedelta(seconds=60)
DENIED = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
NO_CREDENTIALS = ("credential", "169.254.169.254")
"""What is in the error of a client that has found no key, and no role to ask for one."""


class Objects:
    """The side of object stores."""

    def entries(self, below: Location) -> Iterator[Entry]:
        """See the interface."""
        url = _url(below)
        with _told(url):
            for page in obstore.list(_bucket(url), url.key or None, chunk_size=PAGE):
                for one in page:
                    yield _entry(Url(url.root, one["path"]), one)

    def look(self, at: Location) -> Entry | None:
        """See the interface."""
        url = _url(at)
        try:
            with _told(url):
                return _entry(url, obstore.head(_bucket(url), url.key))
        except FileNotFoundError:
            return None

    def read(self, at: Location) -> bytes:
        """See the interface."""
        url = _url(at)
        with _told(url):
            return bytes(obstore.get(_bucket(url), url.key).bytes())

    def read_range(self, at: Location, begin: int, end: int, etag: str) -> bytes:
        """See the interface."""
        url = _url(at)
        with _told(url):
            found = obstore.get(_bucket(url), url.key, options={"range": (begin, end), "if_match": etag})
            return bytes(found.bytes())

    def put(self, at: Location, content: bytes) -> None:
        """See the interface."""
        url = _url(at)
        with _told(url):
            obstore.put(_bucket(url), url.key, content)

    def put_new(self, at: Location, content: bytes) -> bool:
        """See the interface."""
        url = _url(at)
        with _told(url):
            try:
                # In one request: the parts of a longer upload would be put together without the condition.
                obstore.put(_bucket(url), url.key, content, mode="create", use_multipart=False)
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                return self.read(at) == content
        return True

    def delete(self, at: Location) -> None:
        """See the interface."""
        url = _url(at)
        try:
            with _told(url):
                obstore.delete(_bucket(url), url.key)
        except FileNotFoundError:
            pass


def _url(at: Location) -> Url:
    assert isinstance(at, Url)
    return at


def _entry(at: Url, found: Any) -> Entry:
    return Entry(at, found["size"], found["e_tag"] or found["version"] or "", found["last_modified"].timestamp())


def _bucket(at: Url) -> Any:
    return _made(at.root, options.plain_http(at), options.endpoint(), options.region())


@lru_cache(maxsize=32)
def _made(root: str, plain_http: bool, endpoint: str | None, region: str | None) -> Any:
    """A client with its connections; another one where the variables say another place. Keys it reads itself, when it is made."""
    given = {"endpoint": endpoint, "region": region} if root.startswith("s3:") else {}
    more: dict[str, Any] = {key: value for key, value in given.items() if value}
    return from_url(root, client_options={"allow_http": plain_http}, retry_config={"retry_timeout": PATIENCE}, **more)


@contextmanager
def _told(at: Url) -> Iterator[None]:
    """The errors of obstore as those of the interface. Their texts have URLs and answers of the store, and no key."""
    try:
        yield
    except exceptions.NotFoundError as error:
        raise FileNotFoundError(str(at)) from error
    except exceptions.PreconditionError as error:
        raise changed(at) from error
    except DENIED as error:
        raise refused(at) from error
    except exceptions.GenericError as error:
        if any(mark in str(error).lower() for mark in NO_CREDENTIALS):
            raise refused(at) from error
        raise Retryable(
            f"{at.root} does not answer as a store does: {str(error).splitlines()[0][:200]}",
            data="nothing was written that is not whole",
            hint="run the same command again; if it stays so, look at the endpoint (AWS_ENDPOINT_URL) and the region (AWS_REGION)",
        ) from error


def refused(at: Url) -> Refused:
    """What is said where a store does not let us in."""
    return Refused(
        f"{at.root} does not let us in",
        data="nothing was read or written",
        hint="look at the credentials, by the standard variables or the role of this machine, and at what they may do with the bucket: "
        "list, get, put and delete",
    )
