"""Idempotence: obtaining a producer id, and each rule of a partition's sequence.

The simulation tests the rules in combination; here each is tested alone, batch by batch.
"""

from __future__ import annotations

import pytest

from pykclient.errors import (
    AuthenticationError,
    ClusterAuthorizationFailedError,
    DecodeError,
    DisconnectedError,
    KafkaError,
)
from pykclient.network.cluster.cluster import Cluster, TopicInfo
from pykclient.network.retry import Backoff
from pykclient.producer.accumulator.batch import (
    Leader,
    ProducerBatch,
    ProducerIdentity,
)
from pykclient.producer.sender.idempotence import (
    EPOCH_MAX,
    UNDECIDED_MAX,
    Idempotence,
    IdentityState,
)
from pykclient.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.producer.test_batch import new_batch

IDENTITY = ProducerIdentity(7, 3)
LEADER = Leader(1, 1)


class Sequence:
    """The sequence of one partition and its batches."""

    def __init__(self, identity: ProducerIdentity = IDENTITY, in_flight_max: int = 5) -> None:
        self.assigned_count = 0
        self.failures: list[KafkaError] = []
        self.idempotence = Idempotence(
            in_flight_max=in_flight_max,
            backoff=Backoff(100, 1_000, jitter=0.0),
            on_assigned=self._on_assigned,
            on_failed=lambda error, _: self.failures.append(error),
        )
        self._serial = 0
        self.give(identity)

    def give(self, identity: ProducerIdentity) -> None:
        (request,) = self.idempotence.poll(0).requests
        request.on_response(
            InitProducerIdResponse(producer_id=identity[0], producer_epoch=identity[1]), 0
        )

    def batch(self, record_count: int = 10) -> ProducerBatch:
        batch = new_batch(record_count)
        batch.serial = (self._serial,)
        self._serial += 1
        batch.seal()
        return batch

    def may_send(self, batch: ProducerBatch) -> bool:
        return self.idempotence.may_send(batch)

    def send(self, batch: ProducerBatch | None = None) -> ProducerBatch:
        batch = batch or self.batch()
        assert self.may_send(batch)
        self.idempotence.assign(batch)
        batch.on_sent(LEADER)
        return batch

    def succeed(self, batch: ProducerBatch) -> None:
        batch.is_in_request = False
        self.idempotence.on_success(batch)

    def retry(self, batch: ProducerBatch, *, may_be_written: bool) -> None:
        batch.is_in_request = False
        batch.may_be_written |= may_be_written
        batch.on_retry(DisconnectedError("again"), 0)
        self.idempotence.on_retry(batch)

    def lose_place(self, batch: ProducerBatch) -> bool:
        """Respond with OUT_OF_ORDER_SEQUENCE_NUMBER; return whether the batch is retried."""
        batch.is_in_request = False
        may_retry = self.idempotence.on_lost_place(batch)
        if may_retry:
            batch.on_retry(DisconnectedError("again"), 0)
            self.idempotence.on_retry(batch)
        else:
            self.give_up(batch)
        return may_retry

    def give_up(self, batch: ProducerBatch, *, may_be_written: bool = False) -> None:
        batch.is_in_request = False
        batch.may_be_written |= may_be_written
        batch.fail(KafkaError("given up"))
        self.idempotence.on_given_up(batch)

    def _on_assigned(self, now_ms: int) -> None:
        self.assigned_count += 1


def place(batch: ProducerBatch) -> tuple[int, int]:
    return batch.identity.epoch, batch.base_sequence


@pytest.fixture
def running() -> Sequence:
    """Provide a sequence whose first batch, of ten records, is acknowledged."""
    sequence = Sequence()
    sequence.succeed(sequence.send())
    return sequence


@pytest.fixture
def sequence() -> Sequence:
    """Provide the sequence of `running`, of a topic whose id is known."""
    sequence = Sequence()
    anew(sequence, 1)
    sequence.succeed(sequence.send())
    return sequence


# Obtaining an id.


def new_idempotence(failures: list[KafkaError]) -> Idempotence:
    return Idempotence(
        in_flight_max=5,
        backoff=Backoff(100, 1_000, jitter=0.0),
        on_assigned=lambda _: None,
        on_failed=lambda error, _: failures.append(error),
    )


def test_the_id_is_requested_once_from_any_broker_without_a_transaction() -> None:
    idempotence = new_idempotence([])
    (request,) = idempotence.poll(0).requests
    assert isinstance(request.message, InitProducerIdRequest)
    assert request.message.transactional_id is None
    assert request.node_id is None
    assert idempotence.poll(0).requests == ()


@pytest.mark.parametrize("code", [14, 15, 51])
def test_a_busy_coordinator_gets_the_request_again_after_a_growing_back_off(code: int) -> None:
    failures: list[KafkaError] = []
    idempotence = new_idempotence(failures)
    now_ms = 0
    for pause_ms in (100, 200, 400):
        (request,) = idempotence.poll(now_ms).requests
        request.on_response(InitProducerIdResponse(error_code=code), now_ms)
        assert idempotence.poll(now_ms).next_poll_ms == now_ms + pause_ms
        now_ms += pause_ms
    assert failures == []


@pytest.mark.parametrize("error", [DisconnectedError("lost"), DecodeError("damaged")])
def test_a_request_whose_response_is_lost_or_damaged_is_sent_again(error: KafkaError) -> None:
    failures: list[KafkaError] = []
    idempotence = new_idempotence(failures)
    (request,) = idempotence.poll(0).requests
    request.on_failure(error, 0)
    assert len(idempotence.poll(100).requests) == 1
    assert failures == []


def test_a_final_refusal_is_raised() -> None:
    failures: list[KafkaError] = []
    (request,) = new_idempotence(failures).poll(0).requests
    request.on_response(InitProducerIdResponse(error_code=31), 0)
    (request,) = new_idempotence(failures).poll(0).requests
    request.on_failure(AuthenticationError("who are you"), 0)
    kinds = [type(failure) for failure in failures]
    assert kinds == [ClusterAuthorizationFailedError, AuthenticationError]


# The course of a sequence.


def test_each_batch_follows_on_the_records_before_it(running: Sequence) -> None:
    batches = [running.send(running.batch(count)) for count in (5, 1, 7)]
    assert [place(batch) for batch in batches] == [(3, 10), (3, 15), (3, 16)]


def test_a_run_begins_with_one_batch_alone() -> None:
    sequence = Sequence()
    first = sequence.send()
    assert not sequence.may_send(sequence.batch())
    sequence.retry(first, may_be_written=True)
    assert not sequence.may_send(sequence.batch())
    sequence.succeed(sequence.send(first))
    assert sequence.may_send(sequence.batch())


@pytest.mark.parametrize(("in_flight_max", "expected"), [(1, 1), (3, 3), (5, 5), (9, 5)])
def test_no_more_batches_are_undecided_than_a_broker_remembers(
    in_flight_max: int, expected: int
) -> None:
    sequence = Sequence(in_flight_max=in_flight_max)
    sequence.succeed(sequence.send())
    for _ in range(expected):
        sequence.send()
    assert not sequence.may_send(sequence.batch())
    assert expected <= UNDECIDED_MAX


def test_a_retry_keeps_its_numbers_and_goes_alone_before_those_behind_it(running: Sequence) -> None:
    first, second = running.send(), running.send()
    running.retry(first, may_be_written=True)
    running.retry(second, may_be_written=False)
    assert not running.may_send(second)
    running.send(first)
    assert not running.may_send(second)
    running.succeed(first)
    running.send(second)
    assert [place(first), place(second)] == [(3, 10), (3, 20)]


def test_one_out_of_order_behind_another_just_waits_for_it(running: Sequence) -> None:
    first, second = running.send(), running.send()
    running.retry(first, may_be_written=False)
    assert running.lose_place(second)
    assert not running.may_send(second)
    running.succeed(running.send(first))
    assert running.may_send(second)
    assert place(second) == (3, 20)


def test_what_was_never_written_goes_on_under_the_next_epoch(running: Sequence) -> None:
    refused, second, third = running.send(), running.send(), running.send()
    running.give_up(refused)
    assert running.lose_place(second)
    assert not running.may_send(second)  # the third one's request is still out
    running.retry(third, may_be_written=True)
    # Without the first batch it is in this log only if the topic was recreated: the log is checked.
    assert not running.may_send(second)
    running.send(third)
    assert place(third) == (3, 30)
    assert running.lose_place(third)
    assert [batch.has_sequence for batch in (second, third)] == [False, False]
    running.succeed(running.send(second))
    running.send(third)
    assert [place(second), place(third)] == [(4, 0), (4, 10)]


def test_what_may_be_written_is_never_sent_under_other_numbers(running: Sequence) -> None:
    """KAFKA-14034, librdkafka #4953."""
    lost, second, third = running.send(), running.send(), running.send()
    running.give_up(lost, may_be_written=True)
    running.retry(second, may_be_written=True)
    running.retry(third, may_be_written=False)
    assert not running.may_send(running.batch())
    assert running.may_send(second)
    assert not running.may_send(third)
    running.send(second)
    assert place(second) == (3, 20)
    assert running.lose_place(second)  # the leader may have been replaced
    running.send(second)
    assert place(second) == (3, 20)
    assert not running.lose_place(second)  # it could still be written, late: it has to fail
    assert not third.has_sequence  # this one cannot: it was certainly not written
    running.send(third)
    assert place(third) == (4, 0)


def test_a_gap_that_turns_out_to_be_none_changes_nothing(running: Sequence) -> None:
    lost, second = running.send(), running.send()
    running.give_up(lost, may_be_written=True)
    running.succeed(second)  # the broker would not have taken it without the lost one
    batch = running.send()
    assert place(batch) == (3, 30)


def test_a_batch_given_up_in_flight_keeps_its_place_until_its_response(running: Sequence) -> None:
    slow = running.send()
    slow.fail(KafkaError("out of time"))
    second = running.send()
    running.succeed(slow)
    running.succeed(second)
    assert place(running.send()) == (3, 30)


def test_a_log_that_has_lost_our_place_gets_a_new_run(running: Sequence) -> None:
    first, second = running.send(), running.send()
    assert running.lose_place(first)
    assert running.lose_place(second)
    running.succeed(running.send(first))
    assert [place(first), place(running.send(second))] == [(4, 0), (4, 10)]


def test_the_first_in_line_fails_if_the_log_lost_our_place_and_it_may_be_there(
    running: Sequence,
) -> None:
    first = running.send()
    running.retry(first, may_be_written=True)
    running.send(first)
    assert running.lose_place(first)
    running.send(first)
    assert not running.lose_place(first)
    assert place(running.send()) == (4, 0)


def test_a_leader_that_was_replaced_and_refuses_once_fails_nothing(running: Sequence) -> None:
    """It hung, and lacks the records before this batch, which the next leader has acknowledged."""
    first = running.send()
    running.retry(first, may_be_written=True)
    running.send(first)
    assert running.lose_place(first)
    assert place(first) == (3, 10)
    running.succeed(running.send(first))
    assert place(running.send()) == (3, 20)


def anew(sequence: Sequence, number: int = 2) -> None:
    """Give the topic another id."""
    info = TopicInfo("t", number.to_bytes(16, "big"), False, ())
    sequence.idempotence.on_cluster(Cluster(topics=[info]))


def test_a_topic_made_anew_begins_its_sequence_with_one_batch_alone(sequence: Sequence) -> None:
    """Goal: the new log has no state for the producer and would accept the second batch first."""
    anew(sequence, 2)
    first, second = sequence.send(), sequence.batch()
    assert place(first) == (4, 0)
    assert not sequence.may_send(second)
    sequence.succeed(first)
    assert place(sequence.send(second)) == (4, 10)
    anew(sequence, 2)
    assert place(sequence.send()) == (4, 20)


def test_a_topic_whose_id_is_not_known_is_not_made_anew(running: Sequence) -> None:
    anew(running, 1)
    anew(running, 0)
    running.idempotence.on_cluster(Cluster())
    anew(running, 1)
    assert place(running.send()) == (3, 10)


def test_a_run_that_begins_anyway_does_so_under_its_epoch() -> None:
    sequence = Sequence()
    anew(sequence, 1)
    batch = sequence.batch()
    assert sequence.may_send(batch)
    anew(sequence, 2)
    assert place(sequence.send(batch)) == (3, 0)


def test_what_is_on_its_way_when_a_topic_is_made_anew_is_awaited_first(sequence: Sequence) -> None:
    refused, written, lost = sequence.send(), sequence.send(), sequence.send()
    anew(sequence, 2)
    assert not sequence.may_send(sequence.batch())
    sequence.retry(refused, may_be_written=False)
    sequence.succeed(written)
    assert not sequence.may_send(refused)
    sequence.retry(lost, may_be_written=True)
    # It is unknown which log the lost batch went to: the log is checked, in order.
    assert not sequence.may_send(lost)
    sequence.send(refused)
    assert sequence.lose_place(refused)
    sequence.send(lost)
    assert [place(refused), place(lost)] == [(3, 10), (3, 30)]
    sequence.succeed(lost)
    assert place(sequence.send(refused)) == (4, 0)


def test_a_new_log_that_knows_nothing_of_a_run_takes_it_in_order(sequence: Sequence) -> None:
    refused, lost = sequence.send(), sequence.send()
    sequence.retry(refused, may_be_written=False)
    sequence.retry(lost, may_be_written=True)
    anew(sequence, 2)
    for batch in (refused, lost):
        sequence.succeed(sequence.send(batch))
    assert [place(refused), place(lost), place(sequence.send())] == [(3, 10), (3, 20), (4, 0)]


def test_what_was_lost_on_its_way_to_either_log_is_sent_again_under_its_numbers(
    sequence: Sequence,
) -> None:
    lost = sequence.send()
    anew(sequence, 2)
    sequence.retry(lost, may_be_written=True)
    assert place(sequence.send(lost)) == (3, 10)
    sequence.succeed(lost)
    assert place(sequence.send()) == (4, 0)


def test_what_a_lost_request_wrote_to_the_new_log_is_not_sent_under_another_number(
    sequence: Sequence,
) -> None:
    """The topic was recreated before the request, which names it; the id is learned later."""
    doubtful = sequence.send()
    sequence.retry(doubtful, may_be_written=True)
    anew(sequence, 2)
    assert place(sequence.send(doubtful)) == (3, 10)
    sequence.succeed(doubtful)
    assert place(sequence.send()) == (4, 0)


def test_the_former_id_of_a_topic_leaves_what_may_be_written_under_its_number(
    sequence: Sequence,
) -> None:
    """A broker with stale metadata gives the id that the topic had before it was recreated."""
    doubtful = sequence.send()
    sequence.retry(doubtful, may_be_written=True)
    anew(sequence, 0xFF)
    assert place(sequence.send(doubtful)) == (3, 10)
    sequence.retry(doubtful, may_be_written=False)
    anew(sequence, 1)
    assert place(sequence.send(doubtful)) == (3, 10)


def test_what_another_log_refuses_may_still_be_in_the_first_one(sequence: Sequence) -> None:
    refused, doubtful = sequence.send(), sequence.send()
    sequence.retry(refused, may_be_written=False)
    sequence.retry(doubtful, may_be_written=True)
    anew(sequence, 0xFF)
    sequence.send(refused)
    assert sequence.lose_place(refused)
    sequence.send(doubtful)
    assert sequence.lose_place(doubtful)
    sequence.send(doubtful)
    assert not sequence.lose_place(doubtful)  # it fails: it is never sent under another number
    assert place(sequence.send(refused)) == (4, 0)


def test_doubts_about_what_a_request_carries_outlive_the_log(sequence: Sequence) -> None:
    doubtful = sequence.send()
    sequence.retry(doubtful, may_be_written=True)
    sequence.send(doubtful)
    anew(sequence, 2)
    assert doubtful.may_be_written


def test_one_epoch_is_enough_for_all_partitions_of_a_topic_made_anew() -> None:
    sequence = Sequence()
    anew(sequence, 1)
    for partition in range(3):
        batch = sequence.batch()
        batch.partition = batch.partition._replace(partition=partition)
        sequence.succeed(sequence.send(batch))
    anew(sequence, 2)
    assert sequence.idempotence.identity == ProducerIdentity(7, 4)


def test_a_renumbered_batch_is_in_no_doubt(running: Sequence) -> None:
    """Goal: the next "out of order" error does not fail it as a batch that may be in the log."""
    refused, doubtful = running.send(), running.send()
    running.give_up(refused)
    running.retry(doubtful, may_be_written=True)
    running.send(doubtful)
    assert running.lose_place(doubtful)
    assert not doubtful.may_be_written
    running.send(doubtful)
    assert place(doubtful) == (4, 0)
    assert running.lose_place(doubtful)
    assert place(running.send(doubtful)) == (5, 0)


def test_each_partition_bumps_only_for_itself() -> None:
    sequence = Sequence()
    sequence.succeed(sequence.send())
    sequence.give_up(sequence.send())
    other = new_batch(1)
    other.partition = other.partition._replace(partition=1)
    other.seal()
    sequence.send(other)
    assert place(sequence.send()) == (4, 0)
    assert place(other) == (4, 0)  # its run began after the bump


def test_a_second_gap_bumps_again_and_a_partition_behind_takes_the_newest_epoch(
    running: Sequence,
) -> None:
    running.give_up(running.send())
    running.give_up(running.send())
    assert running.idempotence.identity == ProducerIdentity(7, 5)
    assert place(running.send()) == (5, 0)


def test_after_the_last_epoch_comes_another_id() -> None:
    sequence = Sequence(ProducerIdentity(7, EPOCH_MAX))
    sequence.succeed(sequence.send())
    sequence.give_up(sequence.send())
    assert sequence.idempotence.state is IdentityState.NONE
    assert not sequence.may_send(sequence.batch())
    sequence.give(ProducerIdentity(8, 0))
    assert sequence.assigned_count == 2
    batch = sequence.send()
    assert (batch.identity, batch.base_sequence) == (ProducerIdentity(8, 0), 0)


def test_parts_take_the_place_of_the_whole(running: Sequence) -> None:
    whole, behind = running.send(), running.send()
    parts = [running.batch(4), running.batch(6)]
    for number, part in enumerate(parts):
        part.serial = (*whole.serial, number)
        part.identity, part.base_sequence = whole.identity, whole.base_sequence + 4 * number
    running.idempotence.on_split(whole, parts)
    assert running.lose_place(behind)
    running.succeed(running.send(parts[0]))
    assert not running.may_send(behind)
    running.succeed(running.send(parts[1]))
    running.succeed(running.send(behind))
    assert place(running.send()) == (3, 30)


def test_a_split_as_the_last_response_of_a_broken_run_begins_the_next_one(
    running: Sequence,
) -> None:
    whole, behind = running.send(), running.send()
    running.give_up(behind)
    part = running.batch()
    part.serial = (*whole.serial, 0)
    part.identity, part.base_sequence = whole.identity, whole.base_sequence
    whole.is_in_request = False
    running.idempotence.on_split(whole, [part])
    running.send(part)
    assert place(part) == (4, 0)


def test_a_batch_that_never_had_a_place_leaves_no_gap(running: Sequence) -> None:
    batch = running.batch()
    batch.fail(KafkaError("out of time"))
    running.idempotence.on_given_up(batch)
    assert place(running.send()) == (3, 10)
