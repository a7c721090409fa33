"""Claims a prefix of an object store for one platform, and checks that the store has a conditional PUT.

The claim is the object `onlyonce.json` at the prefix, put only if none exists, with the id of the platform's database.
The first start writes it, before anything else is written. A later start reads it: one GET. A prefix without a claim
but with objects below `data` or `tables` is refused. Another platform's prefix that has lost its claim is not
recognised otherwise.
"""

from __future__ import annotations

import json
from itertools import islice
from uuid import uuid4

from onlyonce.core import stored_names
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location, Url
from onlyonce.tables.stores import Objects, Store

CLAIM = stored_names.CLAIM_FILE
OURS = (stored_names.DATA_FOLDER, stored_names.TABLES_FOLDER)
RETRIES = 2
"""A person waits for the answer, and may have named the wrong store."""


def claim(root: Location, platform: str) -> None:
    """Check that data may be kept at a location. On a file system there is nothing to check.

    Raise Refused if the bucket is missing or denies access, if the prefix has data of others, or if the store
    overwrites an object in spite of the condition.
    """
    if not isinstance(root, Url):
        return
    store = Objects(RETRIES)
    there = _claim_of(store, root)
    if there is None:
        _refuse_taken(store, root)
        _try_condition(store, root)
        store.put_new(root / CLAIM, _text(platform))
        there = _claim_of(store, root)
    if there != platform:
        raise Refused(
            f"{root} holds the data of another platform, whose database is {there}",
            data="nothing was read or written",
            hint="name another prefix in ONLYONCE_DATA; if PostgreSQL was restored into a new database from a "
            f"dump, and this is its data, put the new id, {platform}, into {root / CLAIM}",
        )


def _text(platform: str) -> bytes:
    return json.dumps({"platform": platform}).encode()


def _claim_of(store: Store, root: Url) -> str | None:
    try:
        return str(json.loads(store.read(root / CLAIM))["platform"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(
            f"{root / CLAIM} does not say whose data is there: {error}",
            data="nothing was read or written",
            hint="name another prefix in ONLYONCE_DATA; or put the object back from a copy",
        ) from error


def _refuse_taken(store: Store, root: Url) -> None:
    for name in OURS:
        if found := list(islice(store.entries(root / name), 1)):
            raise Refused(
                f"{root} holds data, {found[0].at} for one, and nothing says whose it is",
                data="nothing was read or written",
                hint=f"name an empty prefix in ONLYONCE_DATA; if the data is this platform's, put {root / CLAIM} back",
            )


def _try_condition(store: Store, root: Url) -> None:
    """Check that the store rejects the second conditional PUT of a key. All commits depend on that."""
    probe = root / f"{CLAIM}.{uuid4().hex}"
    try:
        first, second = store.put_new(probe, b"first"), store.put_new(probe, b"second")
        found = store.read(probe)
    finally:
        store.delete(probe)
    if not first or second or found != b"first":
        raise Refused(
            f"the store of {root} has no conditional PUT: it overwrote an object that was to be put only if none "
            "is there",
            data="nothing but a probe was written, and that is gone; commits of two drivers would overwrite each "
            "other there",
            hint="use a store that carries out If-None-Match (Amazon S3, GCS, ADLS, MinIO, Ceph of late, versitygw)",
        )
