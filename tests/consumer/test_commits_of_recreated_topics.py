"""Offsets of a topic that was deleted and recreated are never committed for the new one.

The logs are unrelated: a group that starts at such an offset never reads the records before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.errors import UnknownTopicIdError
from pykclient.network.cluster.cluster import NO_TOPIC_ID
from pykclient.protocol.messages.offset_commit import OffsetCommitRequest
from pykclient.types import TopicPartition
from tests.consumer.commit_scene import NEW_TOPIC_ID, CommitScene, at, committed_in
from tests.consumer.fetched_records import span
from tests.consumer.known_cluster import START_MS, TOPIC_ID

if TYPE_CHECKING:
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.network.manager import Request

INTERVAL_MS = 5_000
P0 = TopicPartition("t", 0)
LATER_MS = START_MS + 60_000


@pytest.fixture
def scene() -> CommitScene:
    return CommitScene(auto_commit_interval_ms=INTERVAL_MS)


@pytest.fixture
def assigned(scene: CommitScene) -> AssignedPartition:
    """Return the position after five records, which a poll has returned from the old topic."""
    scene.subscription.assign([P0])
    (assigned,) = scene.subscription
    scene.subscription.seek(assigned, 5)
    assigned.topic_id = assigned.returned_id = TOPIC_ID
    return assigned


def topic_id_in(request: Request) -> bytes:
    message = request.message
    assert isinstance(message, OffsetCommitRequest)
    (topic,) = message.topics
    return topic.topic_id


@pytest.mark.parametrize("is_chosen", [True, False])
@pytest.mark.parametrize("call", ["commit", "commit_async"])
def test_an_offset_of_the_old_topic_is_left_out(
    scene: CommitScene,
    assigned: AssignedPartition,
    caplog: pytest.LogCaptureFixture,
    call: str,
    is_chosen: bool,
) -> None:
    scene.recreate_topic()
    commit = getattr(scene.commits, call)({P0: at(5)} if is_chosen else None, LATER_MS)
    assert scene.sent() == []
    assert commit.operation.result() is None
    assert "the topic was deleted and recreated" in caplog.text


def test_the_other_topics_are_committed(scene: CommitScene, assigned: AssignedPartition) -> None:
    other = TopicPartition("u", 0)
    scene.recreate_topic()
    scene.commits.commit({P0: at(5), other: at(7)}, LATER_MS)
    (request,) = scene.sent()
    assert committed_in(request) == {other: 7}


def test_a_commit_names_the_topic_that_was_read_until_another_one_is_known(
    scene: CommitScene, assigned: AssignedPartition
) -> None:
    """Goal: the coordinator, which may know more, rejects it; then nothing is left to commit."""
    commit = scene.commits.commit(None, LATER_MS)
    (request,) = scene.sent()
    assert topic_id_in(request) == TOPIC_ID
    scene.respond(request, UnknownTopicIdError.code)
    scene.recreate_topic()
    assert scene.sent(now_ms=LATER_MS - 1) == []
    assert commit.operation.result() is None


def test_automatic_commits_and_those_before_revocations_leave_it_out(
    scene: CommitScene, assigned: AssignedPartition
) -> None:
    scene.commits.begin_poll(START_MS)
    scene.recreate_topic()
    assert scene.sent(now_ms=START_MS + INTERVAL_MS) == []
    operation = scene.commits.commit_before_revocation(LATER_MS)
    assert scene.sent(now_ms=START_MS + INTERVAL_MS) == []
    assert operation.result() is None
    assert scene.commits.commit_if_due(START_MS + 2 * INTERVAL_MS, LATER_MS)
    assert scene.sent(now_ms=START_MS + 2 * INTERVAL_MS) == []


def test_records_that_were_returned_before_their_topic_was_replaced_do_not_count(
    scene: CommitScene, assigned: AssignedPartition
) -> None:
    """A poll may have lost the position meanwhile; the application still has the old records."""
    scene.recreate_topic()
    assigned.topic_id = NEW_TOPIC_ID
    scene.commits.commit({P0: at(5)}, LATER_MS)
    assert scene.sent() == []
    scene.subscription.seek(assigned, 0)
    assigned.topic_id = NEW_TOPIC_ID
    scene.commits.commit(None, LATER_MS)
    (request,) = scene.sent()
    assert (topic_id_in(request), committed_in(request)) == (NEW_TOPIC_ID, {P0: 0})


def test_transactions_leave_out_offsets_of_the_old_topic(
    scene: CommitScene, assigned: AssignedPartition
) -> None:
    other = TopicPartition("u", 0)
    offsets = {P0: at(5), other: at(7)}
    assert scene.commits.of_present_topics(offsets) == offsets
    scene.recreate_topic()
    assert scene.commits.of_present_topics(offsets) == {other: at(7)}


def test_records_of_the_new_topic_are_committed(
    scene: CommitScene, assigned: AssignedPartition
) -> None:
    scene.recreate_topic()
    assigned.topic_id = NEW_TOPIC_ID
    scene.commits.unprocessed.add_span(span(P0, [0]))
    scene.commits.commit({P0: at(1)}, LATER_MS)
    (request,) = scene.sent()
    assert (topic_id_in(request), committed_in(request)) == (NEW_TOPIC_ID, {P0: 1})


def test_an_offset_that_the_user_has_sought_is_one_of_the_present_topic(
    scene: CommitScene, assigned: AssignedPartition
) -> None:
    scene.recreate_topic()
    scene.commits.unprocessed.forget(assigned)
    scene.commits.commit({P0: at(3)}, LATER_MS)
    (request,) = scene.sent()
    assert topic_id_in(request) == NEW_TOPIC_ID


def test_a_broker_that_lags_keeps_no_offset_of_the_new_topic_back(
    scene: CommitScene, assigned: AssignedPartition
) -> None:
    scene.former_topics.add(TOPIC_ID)  # which the metadata names again
    assigned.topic_id = assigned.returned_id = NEW_TOPIC_ID
    for offsets in (None, {P0: at(5)}):
        scene.commits.commit(offsets, LATER_MS)
        (request,) = scene.sent()
        assert topic_id_in(request) == NEW_TOPIC_ID
        scene.respond(request)


def test_topics_without_ids_are_committed_by_name(
    scene: CommitScene, assigned: AssignedPartition
) -> None:
    assigned.topic_id = assigned.returned_id = NO_TOPIC_ID
    scene.commits.commit({TopicPartition("unknown", 0): at(5)}, LATER_MS)
    (request,) = scene.sent()
    assert request.max_version == 9
