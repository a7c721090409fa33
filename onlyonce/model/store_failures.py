"""What an object store says where it does not do what it was asked, by whatever client: obstore, delta-rs, Arrow or
Hadoop.

Pure.

Who calls it: `onlyonce.storage.stores`, and `onlyonce.session.failures` for what Spark hands on as text. No errors.
"""

from __future__ import annotations

import re

from onlyonce.model.errors import OnlyonceError, Refused, Retryable

NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
NO_OBJECT = ("NoSuchKey", "BlobNotFound")
SHUT_OUT = (
    *NO_BUCKET,
    "XAdminUserNotFound",
    "InvalidAccessKeyId",
    "AccessDenied",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
)
"""Codes of a store for a bucket or a key that it does not know, or no more, whatever status it gives them."""
AWAY = (
    "SlowDown",
    "ServiceUnavailable",
    "InternalError",
    "Unable to execute HTTP request",
    "Acquire operation took longer than",
)
"""Of one that is busy or away, after all that its client has tried."""
_CLIENTS = (
    "software.amazon.awssdk",
    "<Code>",
    "Generic S3 error",
    "Generic GCS error",
    "Generic MicrosoftAzure error",
    "AWS Error",
)
_CODE = re.compile(rf"\b({'|'.join(SHUT_OUT)})(?:Exception)?\b")
_PLACE = re.compile(r"\bs3a?://([^/\s'`\"]+)")


def refused(where: str, code: str | None) -> Refused:
    """Of a store that does not let us in, or has no such bucket."""
    if code in NO_BUCKET:
        return Refused(
            f"the bucket of {where} is not there",
            data="nothing was written that is not whole",
            hint="make the bucket, or correct its name, or what leads there (of S3 AWS_REGION and AWS_ENDPOINT_URL)",
        )
    return Refused(
        f"{where} does not let us in" + (f": {code}" if code else ""),
        data="nothing was written that is not whole",
        hint="look at the credentials, by the standard variables or the role of this machine, and at what they "
        "may do with the bucket: "
        "list, get, put and delete",
    )


def away(where: str, said: str) -> Retryable:
    """Of a store that does not answer, or says that it can't now."""
    return Retryable(
        f"{where} does not answer as a store does: {said[:200]}",
        data="nothing was written that is not whole",
        hint="run the same command again; if it stays so, look at what leads there (of S3 AWS_ENDPOINT_URL and "
        "AWS_REGION)",
    )


def of_text(text: str) -> OnlyonceError | None:
    """What the text of an error says of a store; None where it is of something else."""
    if not any(mark in text for mark in _CLIENTS):
        return None
    place = _PLACE.search(text)
    where = f"s3://{place[1]}" if place else "the object store"
    if code := _CODE.search(text):
        return refused(where, code[1])
    return away(where, text.strip().splitlines()[0]) if any(mark in text for mark in AWAY) else None
