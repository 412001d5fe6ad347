"""FetchSession: which partitions each fetch names, and what ends a session."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykclient.consumer.fetch.session import EPOCH_MAX, FetchSession, PartitionFetch, SessionFetch
from pykclient.errors import (
    DisconnectedError,
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
    KafkaError,
)
from pykclient.network.cluster.cluster import NO_TOPIC_ID

A, B, C = (("t", number) for number in range(3))
ID, OTHER_ID = b"i" * 16, b"o" * 16
FIRST = PartitionFetch(ID, 4, 0)


def next_fetch(session: FetchSession, *, uses_ids: bool = True, **wanted: int) -> SessionFetch:
    """Request partitions by the last letter of their name, each from an offset."""
    names = {"a": A, "b": B, "c": C}
    requested = {names[name]: FIRST._replace(offset=offset) for name, offset in wanted.items()}
    return session.next_fetch(requested, uses_ids=uses_ids)


def begun(session_id: int = 7) -> FetchSession:
    session = FetchSession()
    next_fetch(session, a=0, b=0)
    session.on_response(session_id)
    return session


def test_a_fetch_of_a_session_names_what_has_changed_and_what_is_read_no_more() -> None:
    fetch = next_fetch(begun(), a=0, c=5)
    assert (fetch.session_id, fetch.epoch, fetch.is_full) == (7, 1, False)
    assert fetch.named == {C: FIRST._replace(offset=5)}
    assert fetch.forgotten == [(B, ID)]


def test_nothing_is_named_while_nothing_changes() -> None:
    session = begun()
    for epoch in range(1, 5):
        fetch = next_fetch(session, a=0, b=0)
        assert (fetch.epoch, fetch.named, fetch.forgotten) == (epoch, {}, [])
        session.on_response(7)


def test_a_new_leader_epoch_is_a_change() -> None:
    session = begun()
    newer = FIRST._replace(leader_epoch=5)
    assert session.next_fetch({A: FIRST, B: newer}, uses_ids=True).named == {B: newer}


def test_after_the_largest_epoch_comes_one() -> None:
    session = begun()
    session._epoch = EPOCH_MAX
    assert next_fetch(session, a=0).epoch == EPOCH_MAX
    session.on_response(7)
    assert next_fetch(session, a=0).epoch == 1


@pytest.mark.parametrize(
    ("topic_id", "uses_ids"), [(OTHER_ID, True), (NO_TOPIC_ID, False)], ids=["other", "none"]
)
def test_another_topic_id_ends_the_session_and_begins_one(topic_id: bytes, uses_ids: bool) -> None:
    wanted = {A: FIRST._replace(topic_id=topic_id)}
    fetch = begun().next_fetch(wanted, uses_ids=uses_ids)
    assert (fetch.session_id, fetch.epoch, fetch.named) == (7, 0, wanted)


def test_a_broker_without_room_for_a_session_has_everything_named_each_time() -> None:
    session = FetchSession()
    for _ in range(3):
        fetch = next_fetch(session, a=0, b=0)
        assert (fetch.session_id, fetch.epoch, set(fetch.named)) == (0, 0, {A, B})
        session.on_response(0)


@pytest.mark.parametrize(
    ("error", "session_id"),
    [
        (FetchSessionIdNotFoundError("gone"), 0),
        (InvalidFetchSessionEpochError("odd"), 7),
        (FetchSessionTopicIdError("odd"), 7),
        (DisconnectedError("lost"), 7),
    ],
    ids=lambda value: type(value).__name__,
)
def test_after_an_error_everything_is_named_and_a_session_that_may_be_left_is_ended(
    error: KafkaError, session_id: int
) -> None:
    session = begun()
    next_fetch(session, a=3, b=0)
    session.on_error(error)
    fetch = next_fetch(session, a=3, b=0)
    assert (fetch.session_id, fetch.epoch, set(fetch.named)) == (session_id, 0, {A, B})
    session.on_response(8)
    assert next_fetch(session, a=3, b=0) == SessionFetch(8, 1, {}, [])


def test_a_session_is_ended_once() -> None:
    session = begun()
    assert session.end() == SessionFetch(7, -1, {})
    assert session.end() is None
    assert FetchSession().end() is None


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 3)),
            st.sampled_from(["responded", "refused", "lost before", "lost after", "no session"]),
        )
    )
)
def test_whatever_happens_the_broker_reads_what_is_wanted(
    fetches: list[tuple[dict[tuple[str, int], int], str]],
) -> None:
    """Compare with a broker model of KIP-227: after each request both have the same partitions."""
    session = FetchSession()
    sessions: dict[int, tuple[int, dict[tuple[str, int], PartitionFetch]]] = {}
    next_id = 1
    for offsets, outcome in fetches:
        wanted = {name: FIRST._replace(offset=offset) for name, offset in offsets.items()}
        fetch = session.next_fetch(wanted, uses_ids=True)
        if outcome == "lost before":
            session.on_error(DisconnectedError("lost"))
            continue
        if outcome == "refused":
            session.on_error(InvalidFetchSessionEpochError("odd"))
            continue
        if fetch.is_full:
            sessions.pop(fetch.session_id, None)
            session_id, next_id = next_id, next_id + 1
            known = dict(fetch.named)
        else:
            session_id = fetch.session_id
            epoch, known = sessions.pop(session_id)
            assert fetch.epoch == epoch
            known.update(fetch.named)
            for name, _ in fetch.forgotten:
                del known[name]
        assert known == wanted
        sessions[session_id] = (fetch.epoch + 1, known)
        if outcome == "responded":
            session.on_response(session_id)
        elif outcome == "lost after":
            session.on_error(DisconnectedError("lost"))
        else:
            del sessions[session_id]
            session.on_response(0)
    # The broker keeps an unused session only if the response with its id was lost.
    assert len(sessions) <= 1 + [outcome for _, outcome in fetches].count("lost after")


def test_full_fetches_have_no_session() -> None:
    session = FetchSession(is_always_full=True)
    for offset in (0, 5):
        fetch = next_fetch(session, a=offset, b=0)
        assert (fetch.session_id, fetch.epoch, fetch.is_full) == (0, -1, True)
        assert set(fetch.named) == {A, B}
        session.on_response(0)
    assert session.end() is None
