"""A group with ``group_protocol=auto``: which protocol it chooses, when, and what it keeps."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from pykclient.consumer.group.auto import AutoMembership, AutoState
from pykclient.errors import (
    AuthenticationError,
    BrokerError,
    BrokerUnsupportedVersionError,
    CoordinatorNotAvailableError,
    DecodeError,
    DisconnectedError,
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    InconsistentGroupProtocolError,
    InvalidRequestError,
    KafkaError,
    NotCoordinatorError,
    RebootstrapRequiredError,
    UnknownMemberIdError,
    UnknownServerError,
    UnreleasedInstanceIdError,
    UnsupportedVersionError,
)
from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from pykclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from pykclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from pykclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from pykclient.types import TopicPartition
from tests.consumer.group.group_scene import INTERVAL_MS, MAX_POLL_MS, GroupScene
from tests.consumer.known_cluster import topic

if TYPE_CHECKING:
    from collections.abc import Mapping

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
KIP848 = {"group.version": 1}


class AutoScene(GroupScene):
    """A consumer that chooses; `commit_count` is the number of commits before a revocation."""

    def __init__(self, **settings: object) -> None:
        super().__init__("auto", None, **settings)
        self.subscription.subscribe(["t"])

    @property
    def membership(self) -> AutoMembership:
        membership = self.group._membership
        assert isinstance(membership, AutoMembership)
        return membership

    def ask(self) -> None:
        """Subscribe, and poll until the coordinator gets ApiVersions."""
        self.update_metadata(topic("t", [1, 1]))
        self.group.on_subscribed(self.listener)
        self.poll()
        self.sent_request(ApiVersionsRequest)

    def list_versions(
        self, heartbeat: int | None = 1, features: Mapping[str, int] | None = KIP848
    ) -> None:
        """Respond with these features and this version of ConsumerGroupHeartbeat, None for none."""
        apis = [ApiVersion(ApiKey.API_VERSIONS, 0, 4)]
        if heartbeat is not None:
            apis.append(ApiVersion(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, heartbeat))
        levels = [
            FinalizedFeatureKey(name, level, level) for name, level in (features or {}).items()
        ]
        self._respond(
            ApiVersionsResponse(
                api_keys=apis,
                finalized_features=levels,
                finalized_features_epoch=-1 if features is None else 3,
            )
        )
        self.is_classic = self.group.protocol == "classic"

    def join_as(self, protocol: str, *partitions: TopicPartition) -> None:
        """Become a member with a protocol and these partitions."""
        self.ask()
        self.list_versions(features=KIP848 if protocol == "consumer" else {})
        self.poll()
        self.assign(partitions)
        assert self.subscription.partitions == set(partitions)
        self.events.clear()

    def answer_join(self) -> None:
        """Accept the member's JoinGroup; another member leads."""
        self.sent_request(JoinGroupRequest)
        self._respond(
            JoinGroupResponse(generation_id=1, protocol_name="range", leader="m-2", member_id="m-1")
        )

    def refuse(self, error: type[BrokerError]) -> None:
        """Respond to the pending heartbeat or JoinGroup with an error."""
        response: object
        if isinstance(self.sent[0].message, JoinGroupRequest):
            response = JoinGroupResponse(error_code=error.code)
        elif isinstance(self.sent[0].message, HeartbeatRequest):
            response = HeartbeatResponse(error_code=error.code)
        else:
            self.sent_request(ConsumerGroupHeartbeatRequest)
            response = ConsumerGroupHeartbeatResponse(error_code=error.code, error_message="said")
        self._respond(response)

    def fail(self, error: KafkaError) -> None:
        """Fail the pending request."""
        self.sent.pop(0).on_failure(error, self.now_ms)


def chosen(scene: AutoScene) -> str:
    """Return the chosen protocol."""
    return scene.group.protocol or "no choice yet"


@pytest.fixture
def scene() -> AutoScene:
    return AutoScene()


# The choice.


@pytest.mark.parametrize(
    ("heartbeat", "features", "protocol", "reason"),
    [
        (1, {"group.version": 1}, "consumer", "supports KIP-848 groups"),
        (9, {"group.version": 7}, "consumer", "supports KIP-848 groups"),
        (1, None, "consumer", "supports KIP-848 groups"),
        (1, {"group.version": 0}, "classic", "group.version is not enabled"),
        (1, {"transaction.version": 2}, "classic", "group.version is not enabled"),
        (0, {"group.version": 1}, "classic", "no ConsumerGroupHeartbeat of Kafka 4.0"),
        (None, {}, "classic", "no ConsumerGroupHeartbeat of Kafka 4.0"),
    ],
)
def test_the_coordinator_is_asked_before_it_is_joined(
    scene: AutoScene,
    caplog: pytest.LogCaptureFixture,
    heartbeat: int | None,
    features: Mapping[str, int] | None,
    protocol: str,
    reason: str,
) -> None:
    caplog.set_level(logging.INFO)
    scene.poll()
    assert not scene.sent
    assert "no choice yet" in chosen(scene)
    scene.ask()
    assert scene.sent[0].node_id == scene.coordinator_id
    scene.list_versions(heartbeat, features)
    assert chosen(scene) == protocol
    assert f"uses the {protocol} protocol" in caplog.text
    assert reason in caplog.text
    scene.poll()
    kinds = {"classic": JoinGroupRequest, "consumer": ConsumerGroupHeartbeatRequest}
    scene.sent_request(kinds[protocol])
    scene.assign([A])
    assert scene.subscription.partitions == {A}
    assert scene.history()[-1].protocol == protocol


@pytest.mark.parametrize(
    ("features", "unused"),
    [(KIP848, "session_timeout_ms, heartbeat_interval_ms"), ({}, "group_remote_assignor")],
)
def test_settings_of_the_other_protocol_are_named(
    caplog: pytest.LogCaptureFixture, features: Mapping[str, int], unused: str
) -> None:
    caplog.set_level(logging.INFO)
    scene = AutoScene(
        session_timeout_ms=20_000, heartbeat_interval_ms=1_000, group_remote_assignor="range"
    )
    scene.ask()
    scene.list_versions(features=features)
    assert f"not used with it: {unused}\n" in caplog.text
    assert "WARNING" not in caplog.text


def test_a_broker_that_cannot_be_asked_is_a_classic_one(scene: AutoScene) -> None:
    scene.ask()
    scene.fail(UnsupportedVersionError("no ApiVersions"))
    scene.poll()
    scene.sent_request(JoinGroupRequest)


REFUSALS = [
    *(UnknownServerError, CoordinatorNotAvailableError, NotCoordinatorError, InvalidRequestError),
    *(BrokerUnsupportedVersionError, RebootstrapRequiredError),
]


@pytest.mark.parametrize("error", REFUSALS)
def test_an_error_is_no_choice(
    scene: AutoScene, caplog: pytest.LogCaptureFixture, error: type[BrokerError]
) -> None:
    """A broker that starts or fails lists no APIs; it is not older than Kafka 4.0 for that."""
    caplog.set_level(logging.INFO)
    scene.ask()
    for _ in range(3):
        scene._respond(ApiVersionsResponse(error_code=error.code))
        assert scene.membership.state is AutoState.CHOOSING
        assert scene.group.protocol is None
        assert isinstance(scene.group.rejection, error), "an empty poll raises it after a session"
        scene.poll()
        assert not scene.sent, "it pauses"
        if error.retriable:
            assert not scene.group.has_error
        else:
            assert isinstance(scene.group.take_error(), error)
        scene.poll(5_000)
        if not scene.sent:  # this one no longer coordinates the group
            scene.find_coordinator()
            scene.poll(5_000)
        scene.sent_request(ApiVersionsRequest)
    assert "uses the" not in caplog.text
    scene.list_versions()
    assert scene.group.protocol == "consumer"
    assert scene.group.rejection is None


def test_a_broker_that_was_replaced_and_refuses_is_void(scene: AutoScene) -> None:
    scene.ask()
    scene.membership._coordinator.mark_unknown(scene.coordinator_id, "moved")
    scene.now_ms += 5_000
    scene.find_coordinator(3)
    scene._respond(ApiVersionsResponse(error_code=InvalidRequestError.code))
    assert not scene.group.has_error
    scene.poll()
    scene.sent_request(ApiVersionsRequest)


def test_a_response_that_cannot_be_read_is_raised_the_second_time(scene: AutoScene) -> None:
    scene.ask()
    for is_final in (False, True):
        lost = DisconnectedError("gone")
        lost.__cause__ = DecodeError("no number")
        scene.fail(lost)
        assert scene.group.has_error is is_final
        scene.now_ms += 5_000
        if not is_final:
            scene.find_coordinator()
            scene.poll(5_000)
    assert isinstance(scene.group.take_error(), DecodeError)


def test_a_coordinator_that_is_gone_is_looked_up_and_the_next_one_asked(scene: AutoScene) -> None:
    scene.ask()
    scene.fail(DisconnectedError("gone"))
    scene.poll(5_000)
    assert not scene.sent
    scene.find_coordinator(3)
    scene.poll(5_000)
    scene.sent_request(ApiVersionsRequest)
    assert scene.sent[0].node_id == scene.coordinator_id


def test_a_response_of_a_broker_that_was_replaced_is_void(scene: AutoScene) -> None:
    scene.ask()
    scene.membership._coordinator.mark_unknown(scene.coordinator_id, "moved")
    scene.now_ms += 5_000
    scene.find_coordinator(3)
    scene.list_versions(None)
    assert scene.group.protocol is None
    scene.poll()
    scene.sent_request(ApiVersionsRequest)


def test_what_no_retry_cures_is_raised_and_then_tried_again(scene: AutoScene) -> None:
    scene.ask()
    error = AuthenticationError("no")
    scene.fail(error)
    scene.poll(5_000)
    assert not scene.sent
    assert scene.group.has_error
    assert [scene.group.take_error(), scene.group.take_error()] == [error, None]
    scene.poll(5_000)
    scene.sent_request(ApiVersionsRequest)


def test_a_consumer_may_leave_while_it_chooses(scene: AutoScene) -> None:
    scene.ask()
    left = scene.leave()
    scene.list_versions()
    scene.poll()
    assert left.is_done
    assert not scene.sent
    assert scene.membership.state is AutoState.IDLE
    scene.ask()


# From KIP-848 to the classic protocol.


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            BrokerUnsupportedVersionError,
            "its coordinator does not accept KIP-848 members (UNSUPPORTED_VERSION: said); to use "
            "KIP-848, enable the feature group.version with kafka-features.sh",
        ),
        (
            GroupIdNotFoundError,
            "the group has classic members, and its coordinator does not convert it "
            "(GROUP_ID_NOT_FOUND: said); to convert it, set group.consumer.migration.policy of the "
            "brokers to bidirectional or upgrade, and use assignors that brokers have; or stop all "
            "its members first",
        ),
    ],
)
def test_a_group_that_is_not_served_as_one_of_kip848_is_joined_as_a_classic_one(
    scene: AutoScene, caplog: pytest.LogCaptureFixture, error: type[BrokerError], reason: str
) -> None:
    caplog.set_level(logging.INFO)
    scene.ask()
    scene.list_versions()
    scene.poll()
    scene.refuse(error)
    scene.poll()
    scene.sent_request(JoinGroupRequest)
    assert scene.group.protocol == "classic"
    assert not scene.group.has_error
    assert f"group 'g': uses the classic protocol: {reason}\n" in caplog.text
    refused = scene.history()[0]
    assert (refused.reason, refused.error) == ("the consumer has subscribed", reason)
    for text in (caplog.text, str(scene.history())):
        assert "no such group" not in text
        assert "does not support" not in text
    assert "WARNING" not in caplog.text
    assert not scene.events


@pytest.mark.parametrize("is_old", [False, True], ids=["feature off", "older broker"])
def test_a_member_whose_coordinator_was_downgraded_commits_and_goes_on_as_a_classic_one(
    scene: AutoScene, caplog: pytest.LogCaptureFixture, *, is_old: bool
) -> None:
    scene.join_as("consumer", A)
    scene.poll(INTERVAL_MS)
    if is_old:
        scene.sent_request(ConsumerGroupHeartbeatRequest)
        scene.fail(UnsupportedVersionError("no ConsumerGroupHeartbeat"))
    else:
        scene.refuse(BrokerUnsupportedVersionError)
    scene.wait(1)
    assert scene.events == [], "the application is away"
    before = scene.group.member()
    scene.poll()
    assert scene.events == [f"revoked {A}"]
    assert scene.committed_as == [before]
    (warning,) = (each for each in caplog.records if each.levelno >= logging.WARNING)
    assert "continues with the classic protocol" in warning.getMessage()
    scene.is_classic = True
    scene.assign([A, B])
    assert scene.events[1:] == [f"assigned {A} {B}"]
    assert [each.protocol for each in scene.history() if each.protocol] == ["consumer", "classic"]
    assert not scene.group.has_error


def test_a_member_whose_group_is_gone_joins_it_again_before_it_becomes_a_classic_one(
    scene: AutoScene,
) -> None:
    scene.join_as("consumer", A)
    scene.poll(INTERVAL_MS)
    scene.refuse(GroupIdNotFoundError)
    scene.poll()
    assert scene.events == [f"lost {A}"]
    assert scene.sent_request(ConsumerGroupHeartbeatRequest).member_epoch == 0
    scene.refuse(GroupIdNotFoundError)
    scene.poll()
    scene.sent_request(JoinGroupRequest)


def test_an_instance_id_that_is_not_free_is_no_reason_for_the_classic_protocol() -> None:
    """Joining as a classic member would fence the member that has it."""
    scene = AutoScene(group_instance_id="i")
    scene.ask()
    scene.list_versions()
    scene.poll()
    scene.refuse(UnreleasedInstanceIdError)
    assert isinstance(scene.group.take_error(), UnreleasedInstanceIdError)
    scene.poll(5_000)
    scene.sent_request(ConsumerGroupHeartbeatRequest)


# From the classic protocol to KIP-848.


@pytest.mark.parametrize("is_polled", [False, True])
def test_a_member_that_fails_to_sync_while_the_application_works_stays_one(
    scene: AutoScene, *, is_polled: bool
) -> None:
    """Goal: one membership. The coordinator still has the member, which must not choose again."""
    scene.ask()
    scene.list_versions(features={})
    scene.poll()
    scene.answer_join()
    scene.wait(0)
    scene.sent_request(SyncGroupRequest)
    scene._respond(SyncGroupResponse(error_code=GroupAuthorizationFailedError.code))
    if is_polled:
        scene.poll()
    assert isinstance(scene.group.take_error(), GroupAuthorizationFailedError)
    assert scene.membership.state is AutoState.CLASSIC
    scene.poll(5_000)
    assert scene.sent_request(JoinGroupRequest).member_id == "m-1"


@pytest.mark.parametrize("request_type", [JoinGroupRequest, SyncGroupRequest, HeartbeatRequest])
def test_a_static_member_that_was_replaced_does_not_come_back(request_type: type[object]) -> None:
    """Goal: it would fence the member that has its name, which would do the same in turn."""
    scene = AutoScene(group_instance_id="i")
    if request_type is HeartbeatRequest:
        scene.join_as("classic", A)
        scene.poll(INTERVAL_MS)
    else:
        scene.ask()
        scene.list_versions(features={})
        scene.poll()
    if request_type is SyncGroupRequest:
        scene.answer_join()
        scene.poll()
    [request] = scene.sent
    assert isinstance(request.message, request_type)
    if request_type is SyncGroupRequest:
        scene._respond(SyncGroupResponse(error_code=FencedInstanceIdError.code))
    else:
        scene.refuse(FencedInstanceIdError)
    raised: list[KafkaError | None] = []
    for _ in range(3):
        scene.poll(10_000)
        raised.append(scene.group.take_error())
        assert isinstance(raised[-1], FencedInstanceIdError)
        assert not scene.sent
    assert len(set(map(id, raised))) == 3, "each poll raises its own, with its own traceback"


def test_a_static_member_that_was_replaced_may_not_subscribe_again() -> None:
    scene = AutoScene(group_instance_id="i")
    scene.join_as("classic", A)
    scene.poll(INTERVAL_MS)
    scene.refuse(FencedInstanceIdError)
    assert isinstance(scene.group.take_error(), FencedInstanceIdError)
    scene.leave()
    scene.subscription.subscribe(["t"])
    scene.group.on_subscribed(scene.listener)
    scene.poll(10_000)
    assert isinstance(scene.group.take_error(), FencedInstanceIdError)
    assert not scene.sent


def test_a_classic_member_stays_one_where_its_coordinator_is_upgraded(scene: AutoScene) -> None:
    scene.join_as("classic", A)
    scene.membership._coordinator.mark_unknown(scene.coordinator_id, "moved")
    scene.poll(INTERVAL_MS)
    scene.find_coordinator(3)
    scene.poll(INTERVAL_MS)
    scene.sent_request(HeartbeatRequest)
    assert scene.subscription.partitions == {A}


def test_a_classic_member_that_was_removed_chooses_again(scene: AutoScene) -> None:
    scene.join_as("classic", A)
    scene.poll(INTERVAL_MS)
    scene.refuse(UnknownMemberIdError)
    scene.poll()
    assert scene.events == [f"lost {A}"]
    scene.sent_request(ApiVersionsRequest)
    scene.list_versions()
    scene.poll()
    scene.assign([B])
    assert scene.events[1:] == [f"assigned {B}"]
    assert scene.group.protocol == "consumer"


def test_a_classic_member_that_was_late_chooses_again(scene: AutoScene) -> None:
    scene.join_as("classic", A)
    scene.wait(MAX_POLL_MS)
    scene.sent.clear()
    scene.poll()
    assert scene.events == [f"lost {A}"]
    scene.sent_request(ApiVersionsRequest)


def test_a_member_that_was_refused_may_be_one_of_kip848_later(scene: AutoScene) -> None:
    scene.ask()
    scene.list_versions()
    scene.poll()
    scene.refuse(GroupIdNotFoundError)
    scene.poll()
    scene.sent_request(JoinGroupRequest)
    scene.leave()
    scene.sent.clear()
    scene.subscription.subscribe(["t"])
    scene.ask()
    scene.list_versions()
    scene.poll()
    scene.sent_request(ConsumerGroupHeartbeatRequest)
    assert scene.group.protocol == "consumer"


def test_a_member_that_was_never_let_in_raises_why_and_chooses_again(scene: AutoScene) -> None:
    scene.ask()
    scene.list_versions(None)
    scene.poll()
    scene.refuse(InconsistentGroupProtocolError)
    scene.poll(5_000)
    assert not scene.sent, "the error comes first"
    assert isinstance(scene.group.take_error(), InconsistentGroupProtocolError)
    scene.poll(5_000)
    scene.sent_request(ApiVersionsRequest)


def test_a_consumer_that_subscribes_again_chooses_again(scene: AutoScene) -> None:
    scene.join_as("classic", A)
    left = scene.leave()
    scene.poll()
    scene.sent.pop().on_failure(DisconnectedError("gone"), scene.now_ms)
    assert left.is_done
    assert scene.events == [f"revoked {A}"]
    scene.subscription.subscribe(["t"])
    scene.ask()


# Interrupts.


@pytest.mark.parametrize("state", list(AutoState))
def test_an_interrupt_in_any_state_costs_no_membership(scene: AutoScene, state: AutoState) -> None:
    membership = scene.membership
    if state is AutoState.CLASSIC or state is AutoState.LOSING:
        scene.join_as("classic", A)
        if state is AutoState.LOSING:
            scene.poll(INTERVAL_MS)
            scene.refuse(UnknownMemberIdError)
            assert membership.advance(scene.now_ms) is not None
    elif state is AutoState.CONSUMER:
        scene.join_as("consumer", A)
    elif state is not AutoState.IDLE:
        scene.ask()
        if state is AutoState.ENTERING_CLASSIC:
            scene.list_versions(None)
    assert membership.state is state
    scene.sent.clear()
    scene.group.restart(scene.now_ms)
    scene.poll(INTERVAL_MS)
    assert scene.sent, "it goes on"
    held = scene.subscription.partitions
    assert held == ({A} if state in (AutoState.CLASSIC, AutoState.CONSUMER) else frozenset())
