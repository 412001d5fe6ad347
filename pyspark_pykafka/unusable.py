"""UnusableSource: the format "pykafka" where its package cannot be imported.

Owner: none, Spark makes one for each plan.
Source: PySpark's Python data source API (``DataSource``).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from collections.abc import MutableMapping


def unusable_source(error: ImportError) -> type[DataSource]:
    """Return a source whose first use raises the reason why the format cannot be imported."""
    found = sys.modules.get("spark_connector")
    path = None if found is None or hasattr(found, "__path__") else getattr(found, "__file__", None)
    reason = (
        f"Format 'pykafka' cannot be loaded: {error}."
        if path is None
        else f"Format 'pykafka' cannot be loaded: {path} hides the package spark_connector. "
        f"Rename that file."
    )

    class UnusableSource(DataSource):
        """The format "pykafka", which only says why it cannot be used."""

        def __init__(self, options: MutableMapping[str, str]) -> None:
            raise ImportError(reason)

        @classmethod
        def name(cls) -> str:
            return "pykafka"

    return UnusableSource
