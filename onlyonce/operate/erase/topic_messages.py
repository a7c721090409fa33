"""Say when the messages of a pipeline's Kafka topics are gone.

They are not ours to delete; the brokers are asked for each topic's retention.

By Spark's client, since a source's options are those of Java (key stores, JAAS), which librdkafka does not read. A
sink's are librdkafka's (`kafka_units.configuration`).
"""

from __future__ import annotations

from collections.abc import Iterator

from onlyonce.declare.pipeline import Kafka, Pipeline
from onlyonce.declare.sources import inputs
from onlyonce.model.errors import Refused, Retryable
from onlyonce.model.operate import lasting
from onlyonce.model.operate.left import NOT_SEARCHED, Left


def left(pipeline: Pipeline, master: str | None) -> Iterator[Left]:
    """Yield each topic that is a source, and when its messages of now are gone.

    A broker that is away does not hold up the erasure.
    """
    topics = [one.source for one in inputs.each(pipeline) if isinstance(one.source, Kafka)]
    if not topics:
        return
    from onlyonce.session import session
    from onlyonce.sources.kafka import kafka_admin

    spark = session.start(f"onlyonce forget {pipeline.name}", master)
    for source in topics:
        try:
            configuration = kafka_admin.configuration(spark, source)
        except (Refused, Retryable):
            configuration = None
        yield Left(f"messages of the topic {source.topic}", NOT_SEARCHED, f"gone {lasting.of_topic(configuration)}")
