"""Dead letters: batches of records that a task cannot read, kept in a topic as brokers sent them.

A letter has the bytes of a whole batch as its value, in several records if it is large. Its headers
have the place of the records and the error. A repeated task, and another task that reads a part of
the same batch, write the letter again with the same key.

Owner: the task that reads; its worker keeps the producer.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pykclient.errors import KafkaError
from pykclient.producer.config import ProducerConfig
from spark_connector.worker_clients import worker_producer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient import TopicPartition
    from pykclient.errors import CorruptRecordError

_LOG = logging.getLogger(__name__)

HEADER_PREFIX: Final = "pykafka."

ENVELOPE_BYTES: Final = 8 * 1024
"""Room in a record for key and headers, besides a piece of the batch."""

REASON_LENGTH_MAX: Final = 1_000


def put_aside(
    topic: str,
    settings: Mapping[str, object],
    partition: TopicPartition,
    error: CorruptRecordError,
) -> None:
    """Write the batch that an error is about to a topic, and wait for the acknowledgement.

    `settings` are a producer's.

    Raises: `KafkaError` if brokers do not accept it.
    """
    raw, reason = error.raw or b"", str(error.__cause__ or error)[:REASON_LENGTH_MAX]
    size = max(ProducerConfig.from_settings(settings).max_request_size - ENVELOPE_BYTES, 1)
    pieces = [raw[start : start + size] for start in range(0, max(len(raw), 1), size)]
    key = f"{partition}-{error.offset}".encode()
    origin = {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": error.offset,
        "next_offset": error.next_offset,
        "reason": reason,
    }
    headers = [(HEADER_PREFIX + name, str(value).encode()) for name, value in origin.items()]
    try:
        with worker_producer(settings) as producer:
            for number, piece in enumerate(pieces, 1):
                place = (f"{HEADER_PREFIX}piece", f"{number}/{len(pieces)}".encode())
                producer.send(topic, piece, key, headers=[*headers, place]).result()
    except KafkaError as failure:
        raise KafkaError(
            f"{partition} has a damaged batch at offsets [{error.offset}, {error.next_offset}), "
            f"and topic {topic!r} (option deadLettersTopic) did not take it: {failure}"
        ) from failure
    _LOG.warning(
        "%s has a damaged batch at offsets [%s, %s), which is passed over: its %d bytes are in "
        "topic %r: %s",
        partition,
        error.offset,
        error.next_offset,
        len(raw),
        topic,
        reason,
    )
