"""The metrics that there are, with unit and meaning; the names are Java's where Java has them.

Owner: none, it is immutable.
Source: Java classes ``FetchMetricsRegistry``, ``KafkaConsumerMetrics``,
``ConsumerRebalanceMetricsManager``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["CATALOGUE", "CONSUMER", "COORDINATOR", "FETCHING", "MetricName", "MetricText"]

CONSUMER: Final = "consumer-metrics"
FETCHING: Final = "consumer-fetch-manager-metrics"
COORDINATOR: Final = "consumer-coordinator-metrics"


class MetricName(NamedTuple):
    """One metric. `tags` are pairs such as ``("topic", "t")``; most have none."""

    name: str
    group: str
    tags: tuple[tuple[str, str], ...] = ()


class MetricText(NamedTuple):
    """What a metric is measured in, and what it says."""

    unit: str
    meaning: str


CATALOGUE: Final[dict[tuple[str, str], MetricText]] = {
    (FETCHING, "fetch-total"): MetricText("requests", "Fetches that were answered."),
    (FETCHING, "fetch-rate"): MetricText("requests/s", "Fetches that were answered, lately."),
    (FETCHING, "fetch-latency-avg"): MetricText("ms", "From a fetch to its answer, lately."),
    (FETCHING, "fetch-latency-max"): MetricText("ms", "From a fetch to its answer, at most."),
    (FETCHING, "fetch-size-avg"): MetricText("bytes", "Records in an answer, lately."),
    (FETCHING, "fetch-size-max"): MetricText("bytes", "Records in an answer, at most."),
    (FETCHING, "records-consumed-total"): MetricText("records", "Records returned."),
    (FETCHING, "records-consumed-rate"): MetricText("records/s", "Records returned, lately."),
    (FETCHING, "bytes-consumed-total"): MetricText("bytes", "The same, as they are encoded."),
    (FETCHING, "bytes-consumed-rate"): MetricText(
        "bytes/s", "The same, as they are encoded, lately."
    ),
    (FETCHING, "records-per-poll-avg"): MetricText("records", "Records in a take, lately."),
    (FETCHING, "records-skipped-total"): MetricText(
        "records", "Bad records and batches that on_record_error passed over."
    ),
    (FETCHING, "records-lag"): MetricText(
        "records", "Offsets from the position to the end, of one partition, as last heard."
    ),
    (FETCHING, "records-lag-max"): MetricText("records", "The largest of them."),
    (FETCHING, "records-lead"): MetricText(
        "records", "Offsets from the first one in the log to the position, of one partition."
    ),
    (FETCHING, "records-lead-min"): MetricText("records", "The smallest of them."),
    (CONSUMER, "last-poll-seconds-ago"): MetricText("s", "Time since poll was called."),
    (CONSUMER, "time-between-poll-avg"): MetricText("ms", "From poll to poll, lately."),
    (CONSUMER, "time-between-poll-max"): MetricText("ms", "From poll to poll, at most."),
    (COORDINATOR, "assigned-partitions"): MetricText("partitions", "What this consumer reads."),
}
"""By group and name."""
