"""EmptyPolls: when an empty poll is an error, and when it is only early."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.config import ConsumerConfig
from pykclient.consumer.fetch.stalls import (
    ABSENCE_CHARGED_MS,
    NO_CLUSTER_MS,
    UNKNOWN_TOPIC_MS,
    EmptyPolls,
    Stalls,
    unknown_partition,
)
from pykclient.consumer.subscription import SubscriptionState
from pykclient.errors import (
    CoordinatorLoadInProgressError,
    DisconnectedError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)
from pykclient.network.cluster.node import coordinator_id
from pykclient.network.coordinators import Coordinators, CoordinatorType
from pykclient.network.manager import SILENT_MS
from pykclient.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from pykclient.types import TopicPartition
from tests.consumer.known_cluster import RETRY_BACKOFF, topic, update_metadata
from tests.network.scripted_network import BOOTSTRAP, ScriptedNetwork

if TYPE_CHECKING:
    from pykclient.consumer.subscription import AssignedPartition
    from pykclient.errors import KafkaError

A, ABSENT = TopicPartition("t", 0), TopicPartition("absent", 0)
START_MS = 5_000_000
UNREAD_MAX_MS = 60_000
UNKNOWN = {"absent": UnknownTopicOrPartitionError("absent")}


HOURS_MS = 7_200_000
SESSION_MS = 45_000


class Scene:
    """A consumer's polls over a network that the test controls."""

    def __init__(
        self, *partitions: TopicPartition, address_count: int = 1, group_id: str | None = None
    ) -> None:
        self.network = ScriptedNetwork(bootstrap=BOOTSTRAP[:address_count])
        self.subscription = SubscriptionState()
        self.subscription.assign(partitions)
        self.stalls = Stalls()
        self.refusal: KafkaError | None = None
        self.unlisted: list[TopicPartition] = []
        self.coordinators = Coordinators(
            self.network.metadata, self.network.client, retry_backoff=RETRY_BACKOFF
        )
        self._empty_polls = EmptyPolls(
            ConsumerConfig.from_settings(
                bootstrap_servers="broker:9092",
                group_id=group_id,
                session_timeout_ms=SESSION_MS,
                default_api_timeout_ms=UNREAD_MAX_MS,
            ),
            metadata=self.network.metadata,
            client=self.network.client,
            subscription=self.subscription,
            coordinators=self.coordinators,
            stalls=self.stalls,
            why_no_position=lambda _: "it has no leader",
            why_no_member=lambda: self.refusal,
            unlisted=lambda: self.unlisted,
        )

    def poll(self, started_ms: int, timeout_ms: int) -> BaseException | None:
        return self._empty_polls.reason(started_ms, started_ms + timeout_ms)

    def refuse_all(self) -> None:
        """Refuse one connection at every address."""
        self.network.send()
        for _ in range(100):
            for peer in self.network.port.peers:
                if not peer.is_accepted and not peer.is_ended:
                    peer.refuse()
            self.network.turn(10)


def reading() -> tuple[Scene, AssignedPartition]:
    """Return a scene with a cluster, in which A has a position."""
    scene = Scene(A)
    update_metadata(scene.network.metadata, topic("t", [1]))
    assigned = scene.subscription.require(A)
    scene.subscription.seek(assigned, 0)
    return scene, assigned


def test_no_response_at_all_is_an_error_after_a_while_over_all_polls() -> None:
    scene = Scene(A)
    assert scene.poll(START_MS, NO_CLUSTER_MS - 1) is None
    error = scene.poll(START_MS + NO_CLUSTER_MS - 1, 1)
    assert isinstance(error, KafkaTimeoutError)
    assert str(NO_CLUSTER_MS) in str(error)


@pytest.mark.parametrize("address_count", [1, 3])
def test_when_every_address_refused_the_first_empty_poll_reports_it(address_count: int) -> None:
    scene = Scene(A, address_count=address_count)
    scene.refuse_all()
    error = scene.poll(START_MS, 0)
    assert isinstance(error, KafkaTimeoutError)
    for node in BOOTSTRAP[:address_count]:
        assert f"{node.host}:{node.port}" in str(error)


def test_a_broker_that_hangs_up_after_the_handshake_may_require_authentication() -> None:
    scene = Scene(A)
    scene.refuse_all()
    assert "SASL" not in str(scene.poll(START_MS, 0))
    assert scene.poll(START_MS, 0) is None, "that was reported"
    scene.network.metadata.last_error = DisconnectedError("the broker closed the connection")
    assert "SASL" in str(scene.poll(START_MS, 0))


def test_as_long_as_one_address_may_respond_it_waits() -> None:
    scene = Scene(A, address_count=2)
    scene.network.send()
    scene.network.turn()
    scene.network.peer.refuse()
    scene.network.turn()
    assert scene.poll(START_MS, 0) is None


@pytest.mark.promise(
    "`poll` reports lost or unresponsive brokers in time, and reads from them once they are back"
)
def test_a_partition_that_cannot_be_read_is_an_error_in_time_and_again_after_that() -> None:
    scene, assigned = reading()
    scene.stalls.note(assigned, "broker 1 does not respond", START_MS)
    assert scene.poll(START_MS, UNREAD_MAX_MS - 1) is None
    error = scene.poll(START_MS, UNREAD_MAX_MS)
    assert isinstance(error, KafkaTimeoutError)
    assert "t-0 could not be read for 60000 ms: broker 1 does not respond" in str(error)
    assert scene.poll(START_MS + UNREAD_MAX_MS, UNREAD_MAX_MS - 1) is None
    assert isinstance(scene.poll(START_MS + UNREAD_MAX_MS, UNREAD_MAX_MS), KafkaTimeoutError)


def test_a_partition_without_a_position_is_an_error_in_time() -> None:
    scene = Scene(A)
    update_metadata(scene.network.metadata, topic("t", [None]))
    assert scene.poll(START_MS, UNREAD_MAX_MS - 1) is None
    error = scene.poll(START_MS + UNREAD_MAX_MS - 1, 1)
    assert isinstance(error, KafkaTimeoutError)
    assert "it has no leader" in str(error)


def test_what_is_read_again_or_read_no_more_was_no_error() -> None:
    scene, assigned = reading()
    scene.stalls.note(assigned, "broker 1 does not respond", START_MS)
    scene.stalls.end([assigned])
    assert scene.poll(START_MS, 10**9) is None
    scene.stalls.note(assigned, "broker 1 does not respond", START_MS)
    scene.subscription.pause(assigned)
    assert scene.poll(START_MS, 10**9) is None
    scene.subscription.resume(assigned)
    assert scene.poll(START_MS, 10**9) is None, "that was another time"


def test_an_unknown_topic_is_an_error_after_a_while_over_all_polls() -> None:
    scene = Scene(A, ABSENT)
    update_metadata(scene.network.metadata, topic("t", [1]), errors=UNKNOWN)
    step_ms = UNKNOWN_TOPIC_MS // 2
    assert scene.poll(START_MS, step_ms) is None
    error = scene.poll(START_MS + step_ms, step_ms)
    assert isinstance(error, UnknownTopicOrPartitionError)
    assert str(error).startswith("topic 'absent' does not exist")
    assert "Admin.create_topics" in str(error)


def test_what_lasts_is_raised_once_then_logged_now_and_then_and_raised_anew_after_a_cure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(A, ABSENT)
    update_metadata(scene.network.metadata, topic("t", [1]), errors=UNKNOWN)
    errors = [scene.poll(START_MS + n * 1_000, 1_000) for n in range(50)]
    assert [n for n, error in enumerate(errors) if error is not None] == [0]
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 2, "one each half a minute"
    assert "topic 'absent' does not exist" in warnings[0].getMessage()
    update_metadata(scene.network.metadata, topic("t", [1]), topic("absent", [1]))
    assert scene.poll(START_MS + 50_000, 1_000) is None
    update_metadata(scene.network.metadata, topic("t", [1]), errors=UNKNOWN)
    assert scene.poll(START_MS + 51_000, 999) is None
    assert scene.poll(START_MS + 51_999, 1) is not None


def test_a_second_missing_topic_is_raised_beside_one_that_was(caplog: object) -> None:
    other = TopicPartition("other", 0)
    scene = Scene(ABSENT, other)
    update_metadata(scene.network.metadata, errors={**UNKNOWN, "other": UNKNOWN["absent"]})
    messages = [str(scene.poll(START_MS + n * 1_000, 1_000)) for n in range(3)]
    assert [text[:14] for text in messages] == ["topic 'absent'", "topic 'other' ", "None"]


def test_a_topic_that_appears_in_time_was_never_an_error() -> None:
    scene = Scene(ABSENT)
    update_metadata(scene.network.metadata, errors=UNKNOWN)
    assert scene.poll(START_MS, UNKNOWN_TOPIC_MS - 1) is None
    update_metadata(scene.network.metadata, topic("absent", [1]))
    assert scene.poll(START_MS, UNKNOWN_TOPIC_MS) is None
    update_metadata(scene.network.metadata, errors=UNKNOWN)
    later_ms = START_MS + 10 * UNKNOWN_TOPIC_MS
    assert scene.poll(later_ms, UNKNOWN_TOPIC_MS - 1) is None


def test_a_topic_without_a_leader_yet_is_not_unknown() -> None:
    scene = Scene(ABSENT)
    update_metadata(scene.network.metadata, errors={"absent": LeaderNotAvailableError("absent")})
    assert scene.poll(START_MS, UNREAD_MAX_MS - 1) is None


def test_a_partition_beyond_the_last_is_unknown() -> None:
    metadata = Scene().network.metadata
    update_metadata(metadata, topic("t", [1, 1]))
    error = unknown_partition(metadata.cluster, TopicPartition("t", 2))
    assert error is not None
    assert "2 partitions" in str(error)
    assert unknown_partition(metadata.cluster, A) is None
    assert unknown_partition(metadata.cluster, ABSENT) is None, "it was not requested yet"


def test_of_a_topic_the_lowest_missing_partition_is_reported() -> None:
    scene = Scene(A, *(TopicPartition("t", number) for number in (7, 3, 5)))
    update_metadata(scene.network.metadata, topic("t", [1]))
    error = scene.poll(START_MS, UNKNOWN_TOPIC_MS)
    assert isinstance(error, UnknownTopicOrPartitionError)
    assert "t-3 does not exist" in str(error)
    assert scene.poll(START_MS + UNKNOWN_TOPIC_MS, UNKNOWN_TOPIC_MS) is None
    scene.subscription.assign([A, TopicPartition("t", 7)])
    later_ms = START_MS + 2 * UNKNOWN_TOPIC_MS
    assert "t-7 does not exist" in str(scene.poll(later_ms, UNKNOWN_TOPIC_MS))


def test_a_partition_that_the_group_assigns_and_brokers_do_not_list_is_an_error() -> None:
    scene, _ = reading()
    scene.unlisted = [TopicPartition("t", 1)]
    assert "t-1 does not exist" in str(scene.poll(START_MS, UNKNOWN_TOPIC_MS))
    scene.unlisted = [ABSENT]
    update_metadata(scene.network.metadata, topic("t", [1]))
    assert scene.poll(START_MS, UNREAD_MAX_MS - 1) is None
    error = scene.poll(START_MS + UNREAD_MAX_MS - 1, 1)
    assert isinstance(error, KafkaTimeoutError)
    assert "absent-0, which the group has assigned to this consumer" in str(error)
    assert "brokers do not list it in metadata" in str(error)
    assert scene.poll(START_MS + UNREAD_MAX_MS, UNREAD_MAX_MS - 1) is None
    assert isinstance(scene.poll(START_MS + UNREAD_MAX_MS, UNREAD_MAX_MS), KafkaTimeoutError)


# Time without empty polls.


def test_of_the_time_between_empty_polls_a_moment_counts() -> None:
    scene = Scene(A, group_id="g")
    scene.subscription.unsubscribe()
    scene.subscription.subscribe(["t"])
    update_metadata(scene.network.metadata, topic("t", [1]))
    assert scene.poll(START_MS, 100) is None
    later_ms = START_MS + HOURS_MS
    assert scene.poll(later_ms, 100) is None, "records were found in between"
    error = scene.poll(later_ms + 100, SESSION_MS)
    assert isinstance(error, KafkaTimeoutError)
    waited_ms = 100 + ABSENCE_CHARGED_MS + 100 + SESSION_MS
    assert f"was not found for {waited_ms} ms" in str(error)


@pytest.mark.parametrize("has_polled", [True, False])
def test_a_stall_of_before_an_absence_is_only_raised_if_it_lasts(has_polled: bool) -> None:
    scene, assigned = reading()
    scene.stalls.note(assigned, "broker 1 does not respond", START_MS)
    if has_polled:
        assert scene.poll(START_MS, 100) is None
    later_ms = START_MS + 4 * UNREAD_MAX_MS
    assert scene.poll(later_ms, 100) is None
    assert isinstance(scene.poll(later_ms + 100, UNREAD_MAX_MS), KafkaTimeoutError)


def test_a_stall_that_began_in_this_poll_does_not_become_older() -> None:
    scene, assigned = reading()
    later_ms = START_MS + HOURS_MS
    assert scene.poll(START_MS, 100) is None
    scene.stalls.note(assigned, "broker 1 does not respond", later_ms + 10)
    assert scene.poll(later_ms, UNREAD_MAX_MS + 9) is None
    assert isinstance(scene.poll(later_ms, UNREAD_MAX_MS + 10), KafkaTimeoutError)


def test_no_response_at_two_moments_far_apart_is_no_error_yet() -> None:
    scene = Scene(A)
    assert scene.poll(START_MS, 0) is None
    assert scene.poll(START_MS + HOURS_MS, 0) is None
    assert scene.poll(START_MS + HOURS_MS, NO_CLUSTER_MS - ABSENCE_CHARGED_MS) is not None


def test_polls_for_a_moment_now_and_then_are_reported_in_the_end() -> None:
    scene = Scene(ABSENT)
    update_metadata(scene.network.metadata, errors=UNKNOWN)
    errors = [scene.poll(START_MS + n * HOURS_MS, 0) for n in range(3)]
    assert errors[:2] == [None, None]
    assert isinstance(errors[2], UnknownTopicOrPartitionError)


def member() -> Scene:
    """Return a member whose coordinator is broker 1."""
    scene = Scene(group_id="g")
    scene.subscription.subscribe(["t"])
    update_metadata(scene.network.metadata, topic("t", [1]))
    assert scene.coordinators.find(CoordinatorType.GROUP, "g").node() is None
    (request,) = scene.coordinators.poll(START_MS).requests
    found = Coordinator(key="g", node_id=1, host="broker-1", port=9092)
    request.on_response(FindCoordinatorResponse(coordinators=[found]), START_MS)
    return scene


def test_the_error_of_a_member_that_cannot_join_names_the_log_of_the_attempts() -> None:
    scene = member()
    scene.refusal = CoordinatorLoadInProgressError("JoinGroup")
    error = scene.poll(START_MS, SESSION_MS)
    assert isinstance(error, KafkaTimeoutError)
    assert "did not accept this consumer as a member" in str(error)
    assert "group_history()" in str(error)
    assert "__consumer_offsets" not in str(error)


def test_a_coordinator_that_never_responds_is_reported_after_a_session() -> None:
    """Goal: it accepts connections, so it is not unreachable, and refuses nothing."""
    scene = member()
    scene.network.send(coordinator_id(1), timeout_ms=600_000)
    scene.network.turn()
    scene.network.peer.accept()
    scene.network.turn()
    assert scene.poll(START_MS, SESSION_MS) is None
    scene.network.turn(SILENT_MS)
    assert scene.poll(START_MS, SESSION_MS - 1) is None
    error = scene.poll(START_MS + SESSION_MS - 1, 1)
    assert isinstance(error, KafkaTimeoutError)
    named = f"the coordinator of group 'g' did not respond for {SESSION_MS} ms: broker-1:9092 (id 1"
    assert named in str(error)
    assert "has not responded to the Kafka handshake yet" in str(error)
    assert "__consumer_offsets" not in str(error)


def test_a_coordinator_that_was_forgotten_before_any_poll_saw_it_is_out_of_reach() -> None:
    scene = member()
    node_id = coordinator_id(1)
    scene.network.send(node_id)
    scene.network.turn()
    scene.network.peer.refuse()
    scene.network.turn()
    scene.coordinators.find(CoordinatorType.GROUP, "g").mark_unknown(node_id, "lost")
    error = scene.poll(START_MS, SESSION_MS)
    assert isinstance(error, KafkaTimeoutError)
    assert "was unreachable" in str(error)
    assert "refused" in str(error)
