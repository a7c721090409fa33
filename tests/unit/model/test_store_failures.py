"""What an object store says, told alike whichever client was told it."""

from __future__ import annotations

import pytest

from onlyonce.core.errors import Refused, Retryable
from onlyonce.core.failures import store_failure_of_text
from onlyonce.engine.failures import translate

OF_SPARK = (
    "terminated with exception: getFileStatus on s3://lake/data/shop: "
    "software.amazon.awssdk.services.s3.model.{}: as it is (Status Code: {}):{}: as it is"
)
OF_DELTA = (
    "Generic S3 error: Error performing PUT http://host/lake/x in 1ms - Server returned non-2xx status code: "
    "{}: <Error><Code>{}</Code></Error>"
)


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        (
            OF_SPARK.format("NoSuchBucketException", 404, "NoSuchBucket"),
            Refused,
            "the bucket of s3://lake does not exist",
        ),
        (OF_SPARK.format("S3Exception", 400, "ExpiredToken"), Refused, "s3://lake does not let us in: ExpiredToken"),
        (OF_SPARK.format("S3Exception", 503, "SlowDown"), Retryable, "s3://lake does not answer"),
        (OF_DELTA.format("403 Forbidden", "AccessDenied"), Refused, "does not let us in: AccessDenied"),
        (OF_DELTA.format("500 Internal Server Error", "InternalError"), Retryable, "does not answer"),
    ],
)
def test_who_acts_is_told_by_what_the_store_says(text: str, kind: type[Exception], says: str) -> None:
    found = translate(RuntimeError(text))
    assert isinstance(found, kind)
    assert says in str(found)


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: ExpiredToken in column state",
        OF_SPARK.format("NoSuchKeyException", 404, "NoSuchKey"),
        # A method of Spark that is in many of its stack traces.
        OF_SPARK.format("S3Exception", 400, "x") + "QueryExecution$.withInternalError(QueryExecution.scala:656)",
    ],
)
def test_a_word_of_a_store_in_another_error_says_nothing_of_it(text: str) -> None:
    assert store_failure_of_text(text) is None
