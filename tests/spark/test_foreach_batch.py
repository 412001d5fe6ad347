"""`foreach_batch`: the query of a batch, and the options that it writes with, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from pykclient.errors import ConfigError
from spark_connector import foreach_batch
from spark_connector.exactly_once.delivery import ExactDelivery
from spark_connector.foreach_batch import QUERY_PROPERTY, _ForeachBatch
from spark_connector.writers import BATCH_PROPERTY, STREAM_SETTINGS, query_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

EXACT = {"topic": "a", "delivery": "exactly_once", "sinkId": "s"}


class Session:
    """A session of Spark: `active` are the ids of its queries, `query` a thread's property.

    Without `query` it is one of Spark Connect.
    """

    def __init__(self, active: Sequence[str] = (), query: str | None = None) -> None:
        self.streams = SimpleNamespace(active=[SimpleNamespace(id=each) for each in active])
        if query is not None:
            self.sparkContext = SimpleNamespace(getLocalProperty={QUERY_PROPERTY: query}.get)


class Batch:
    """A frame, and the options that it was written with."""

    def __init__(self, session: Session) -> None:
        self.sparkSession = session
        self.written: list[dict[str, str]] = []
        self.write = self

    def format(self, name: str) -> Batch:
        assert name == "pykafka"
        return self

    def mode(self, name: str) -> Batch:
        assert name == "append"
        return self

    def options(self, **options: str) -> Batch:
        self.written.append(options)
        return self

    def save(self) -> None:
        pass


def written(
    session: Session, options: dict[str, str] = EXACT, started_in: Session | None = None
) -> dict[str, str]:
    batch = Batch(session)
    _ForeachBatch(options, cast("SparkSession | None", started_in))(cast("DataFrame", batch), 7)
    return batch.written[0]


def test_the_owner_is_the_query_that_classic_spark_tells() -> None:
    assert written(Session(["other", "more"], "q")) == {**EXACT, "batchId": "7", "sinkOwner": "q"}


def test_the_owner_is_the_only_query_of_the_session_that_has_started_it() -> None:
    clone = Session(["not this one"])
    assert written(clone, started_in=Session(["q"]))["sinkOwner"] == "q"
    assert written(Session(["q"]))["sinkOwner"] == "q"


@pytest.mark.parametrize("active", [[], ["q", "other"]])
def test_without_an_owner_exactly_once_is_refused(active: list[str]) -> None:
    with pytest.raises(ConfigError, match=rf"{len(active)} queries are active.*'sinkOwner'"):
        written(Session(active))
    # Rows that are written at least once need none.
    assert written(Session(active), {"topic": "a"}) == {"topic": "a"}


def test_an_owner_that_the_user_names_is_kept() -> None:
    assert written(Session(["q"]), {**EXACT, "SINKOWNER": "mine"})["SINKOWNER"] == "mine"


def test_the_owner_stays_when_another_query_starts() -> None:
    function = foreach_batch(EXACT)
    first, second = Batch(Session(["q"])), Batch(Session(["q", "other"]))
    for batch in (first, second):
        function(cast("DataFrame", batch), 7)
    assert second.written[0]["sinkOwner"] == "q"


@pytest.mark.parametrize("delivery", ["at_least_once", " AT_LEAST_ONCE", "At_Least_Once"])
def test_rows_that_are_written_at_least_once_have_no_number(delivery: str) -> None:
    given = {"topic": "a", "Delivery": delivery}
    assert written(Session(["q"]), given) == given


@pytest.mark.parametrize("delivery", ["exactly_once", "EXACTLY_ONCE "])
def test_the_number_is_sparks(delivery: str) -> None:
    given = {**EXACT, "delivery": delivery, "BATCHID": "1"}
    found = written(Session(["q"]), given)
    assert {name: found[name] for name in found if name.lower() == "batchid"} == {"batchId": "7"}


# A function of the user's own.

NUMBERED = ExactDelivery("s", "task", 7, "a")
OWNED = ExactDelivery("s", "task", 7, "a", owner="mine")
CONNECT = dict.fromkeys(STREAM_SETTINGS, "false")
CLASSIC = {BATCH_PROPERTY: "7", QUERY_PROPERTY: "q"}


@pytest.mark.parametrize(
    ("exactly", "properties", "query"),
    [
        (NUMBERED, CLASSIC, "q"),
        (OWNED, CLASSIC, "mine"),
        (OWNED, CONNECT, "mine"),
        (NUMBERED, {}, ""),
        (NUMBERED, {STREAM_SETTINGS[0]: "false"}, ""),
        (OWNED, {}, "mine"),
    ],
)
def test_a_write_belongs_to_the_query_that_spark_or_the_user_names(
    exactly: ExactDelivery, properties: dict[str, str], query: str
) -> None:
    assert query_of(exactly, properties.get) == query


@pytest.mark.parametrize("properties", [CLASSIC, CONNECT], ids=["classic", "connect"])
def test_a_write_in_foreach_batch_needs_a_number(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="This write is in foreachBatch, and has no number"):
        query_of(ExactDelivery("s", "task", None, "a"), properties.get)


def test_a_write_in_foreach_batch_needs_an_owner_where_spark_tells_none() -> None:
    with pytest.raises(ConfigError, match=r"does not tell which query it is of.*'sinkOwner'"):
        query_of(NUMBERED, CONNECT.get)
