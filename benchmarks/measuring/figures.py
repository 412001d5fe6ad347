"""Names of figures as people read them, and the formats of their values.

Owner: none; the table is constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Figure(NamedTuple):
    """Its heading with the unit, and its number format."""

    heading: str
    number_format: str

    def text(self, value: float) -> str:
        """Return a value as it stands in a table."""
        return format(value, self.number_format)


FIGURES = {
    "records_per_second": Figure("records/s", ",.0f"),
    "cpu_s_per_million": Figure("client CPU s per million", ".3f"),
    "instructions_per_record": Figure("instructions a record", ",.0f"),
    "ack_p50_ms": Figure("acknowledged, p50, ms", ".2f"),
    "ack_p99_ms": Figure("acknowledged, p99, ms", ".2f"),
    "received_p50_ms": Figure("received, p50, ms", ".2f"),
    "received_p99_ms": Figure("received, p99, ms", ".2f"),
    "missed_heartbeats": Figure("missed heartbeats", ".0f"),
    "heartbeat_gap_ms": Figure("longest between heartbeats, ms", ",.0f"),
    "growth_mib": Figure("resident growth, MiB", ".1f"),
    "import_ms": Figure("import, ms", ".1f"),
    "wall_ms": Figure("wall time, ms", ",.0f"),
    "batch_ms": Figure("batch, ms", ",.0f"),
    "spark_cpu_s": Figure("Spark's CPU, s", ".2f"),
    "broker_cpu_s": Figure("brokers' CPU, s", ".2f"),
    "requests": Figure("requests", ",.0f"),
    "list_offsets": Figure("ListOffsets requests", ",.1f"),
    "connections": Figure("new connections", ",.0f"),
    "worker_mb": Figure("Python worker, resident, MB", ",.0f"),
    "direct_mb": Figure("JVM direct memory, MB", ",.0f"),
    "optional_modules": Figure("optional dependencies loaded", ".0f"),
}


def figures_text(figures: Mapping[str, float]) -> str:
    """All figures of one measurement on one line."""
    return ", ".join(
        f"{FIGURES[name].heading} {FIGURES[name].text(value)}" for name, value in figures.items()
    )
