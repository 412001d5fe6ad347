"""Prepared transactions of both versions where calls are interrupted, or responses lost."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, PreparedTransaction, Producer
from pykclient.errors import (
    AdminCallError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionalIdAuthorizationFailedError,
    TransactionStateError,
    UnsupportedVersionError,
    UsageError,
)
from pykclient.producer.sender.transaction_state import TransactionState
from pykclient.protocol.api_keys import ApiKey
from pykclient.testing import FakeKafka, TransactionSettings
from pykclient.testing.fake.faults import (
    delay_response,
    disconnect,
    fail_with,
    lose_response,
)
from tests.integration.test_transaction_faults import TOPIC, committed, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

TRANSACTIONAL_IDS = 1
"""The type of coordinators."""


@pytest.fixture(params=[1, 2])
def fake(request: pytest.FixtureRequest) -> Iterator[FakeKafka]:
    """Fake brokers with transactions of each version."""
    settings = TransactionSettings(transaction_version=request.param)
    with FakeKafka(3, transaction_settings=settings) as fake:
        with fake.control() as cluster:
            cluster.create_topic(TOPIC, 1)
        yield fake


@pytest.fixture
def admin(fake: FakeKafka) -> Iterator[Admin]:
    servers = fake.bootstrap_servers
    with Admin(bootstrap_servers=servers, retry_backoff_ms=5, request_timeout_ms=2_000) as admin:
        yield admin


def state(fake: FakeKafka, transactional_id: str = "x") -> str:
    with fake.control() as cluster:
        found = cluster.transactions.find(transactional_id)
        assert found is not None
        return found.state.value


def prepared_by(producer: Producer, value: bytes = b"a") -> PreparedTransaction:
    producer.begin_transaction()
    producer.send(TOPIC, value)
    prepared = producer.prepare_transaction()
    assert prepared is not None
    return prepared


def prepare(fake: FakeKafka, transactional_id: str, value: bytes) -> PreparedTransaction:
    """Prepare a transaction, and close its producer."""
    with Producer(
        bootstrap_servers=fake.bootstrap_servers, transactional_id=transactional_id
    ) as producer:
        producer.init_transactions()
        return prepared_by(producer, value)


def wait_until_preparing(producer: Producer) -> None:
    transactions = producer._core.transactions
    assert transactions is not None
    while transactions.state is not TransactionState.PREPARING:
        time.sleep(0.001)


def interrupt_prepare(fake: FakeKafka, producer: Producer) -> None:
    """Begin a transaction, and have Ctrl-C come while it is being prepared."""
    with fake.control() as cluster:
        delayed = cluster.faults.add(delay_response(1_000), ApiKey.PRODUCE)
    producer.begin_transaction()
    producer.send(TOPIC, b"a")
    main = threading.get_ident()

    def interrupt() -> None:
        wait_until_preparing(producer)
        while not delayed.used_count:
            time.sleep(0.001)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        producer.prepare_transaction()
    thread.join()


def test_what_ctrl_c_interrupts_is_prepared_by_calling_again(fake: FakeKafka, admin: Admin) -> None:
    with opened(fake) as producer:
        producer.init_transactions()
        interrupt_prepare(fake, producer)
        for call in (producer.begin_transaction, producer.commit_transaction):
            with pytest.raises(TransactionStateError, match=r"prepare_transaction\(\) has not"):
                call()
        prepared = producer.prepare_transaction()
        assert prepared is not None
    assert state(fake) == "Ongoing"
    admin.commit_prepared_transactions([prepared])
    assert committed(fake) == [b"a"]


def test_close_aborts_what_ctrl_c_has_left(fake: FakeKafka) -> None:
    with opened(fake) as producer:
        producer.init_transactions()
        interrupt_prepare(fake, producer)
    assert state(fake) == "CompleteAbort"
    assert committed(fake) == []


def test_an_abort_may_follow_what_was_interrupted(fake: FakeKafka) -> None:
    with opened(fake) as producer:
        producer.init_transactions()
        interrupt_prepare(fake, producer)
        producer.abort_transaction()
        with producer.transaction():
            producer.send(TOPIC, b"b")
    assert committed(fake) == [b"b"]


def test_a_time_out_leaves_it_under_way(fake: FakeKafka, admin: Admin) -> None:
    with opened(fake, max_block_ms=400) as producer:
        producer.init_transactions()
        with fake.control() as cluster:
            cluster.faults.add(delay_response(1_000), ApiKey.PRODUCE)
        producer.begin_transaction()
        producer.send(TOPIC, b"a")
        with pytest.raises(KafkaTimeoutError, match=r"'preparing'.* It goes on; call it again"):
            producer.prepare_transaction()
        while True:
            try:
                prepared = producer.prepare_transaction()
                break
            except KafkaTimeoutError:
                pass
        assert prepared is not None
        admin.commit_prepared_transactions([prepared])
    assert committed(fake) == [b"a"]


def test_a_delivery_callback_cannot_wait_for_it(fake: FakeKafka) -> None:
    refused: list[BaseException] = []
    with opened(fake) as producer:

        def on_delivery(metadata: object, error: object) -> None:
            try:
                producer.prepare_transaction()
            except UsageError as failure:
                refused.append(failure)

        producer.init_transactions()
        producer.begin_transaction()
        producer.send(TOPIC, b"a", on_delivery=on_delivery)
        producer.prepare_transaction()
    assert "would wait for itself" in str(refused)


def test_close_in_another_thread_waits_for_it(fake: FakeKafka, admin: Admin) -> None:
    found: list[PreparedTransaction | None] = []
    with opened(fake) as producer:
        producer.init_transactions()
        with fake.control() as cluster:
            cluster.faults.add(delay_response(1_000), ApiKey.PRODUCE)
        producer.begin_transaction()
        producer.send(TOPIC, b"a")
        thread = threading.Thread(target=lambda: found.append(producer.prepare_transaction()))
        thread.start()
        wait_until_preparing(producer)
        assert producer.close() == 0
        thread.join()
    (prepared,) = found
    assert prepared is not None
    assert state(fake) == "Ongoing"
    admin.abort_prepared_transactions([prepared])
    assert committed(fake) == []


@pytest.mark.parametrize("is_failed", [False, True])
def test_the_end_of_a_block_ends_what_is_prepared_in_it(fake: FakeKafka, is_failed: bool) -> None:
    def run() -> None:
        with producer.transaction():
            producer.send(TOPIC, b"a")
            assert producer.prepare_transaction() is not None
            if is_failed:
                raise ZeroDivisionError

    with opened(fake) as producer:
        producer.init_transactions()
        if is_failed:
            with pytest.raises(ZeroDivisionError):
                run()
        else:
            run()
        with producer.transaction():
            producer.send(TOPIC, b"b")
    assert committed(fake) == [b"a", b"b"][is_failed:]


def test_a_producer_that_was_fenced_since_it_prepared_says_so(fake: FakeKafka) -> None:
    with opened(fake) as producer, opened(fake) as newer:
        producer.init_transactions()
        prepared_by(producer)
        newer.init_transactions()
        with pytest.raises(ProducerFencedError, match=r"has called init_transactions\(\) since"):
            producer.commit_transaction()
        assert committed(fake) == []


def test_a_producer_whose_transaction_was_ended_elsewhere_ends_it_likewise_or_says_so(
    fake: FakeKafka, admin: Admin
) -> None:
    with opened(fake) as producer:
        producer.init_transactions()
        admin.commit_prepared_transactions([prepared_by(producer)])
        producer.commit_transaction()  # once more
        with producer.transaction():
            producer.send(TOPIC, b"b")
        admin.abort_prepared_transactions([prepared_by(producer, b"c")])
        with pytest.raises(InvalidTxnStateError, match="was ended elsewhere since"):
            producer.commit_transaction()
    assert committed(fake) == [b"a", b"b"]


def test_a_transaction_that_is_not_ended_in_its_time_is_gone_and_the_next_may_begin(
    fake: FakeKafka, admin: Admin
) -> None:
    with opened(fake, transaction_timeout_ms=100) as producer:
        producer.init_transactions()
        prepared = prepared_by(producer)
        deadline_s = time.monotonic() + 30
        while state(fake) == "Ongoing":
            assert time.monotonic() < deadline_s
        is_v1 = prepared.transaction_version == 1
        with pytest.raises(
            ProducerFencedError if is_v1 else InvalidTxnStateError,
            match=r"the coordinator has aborted .* after its transaction_timeout_ms",
        ):
            admin.commit_prepared_transactions([prepared])
        producer.init_transactions()
        admin.commit_prepared_transactions([prepared_by(producer, b"b")])
        producer.init_transactions()
        prepared_by(producer, b"c")
        while state(fake) == "Ongoing":
            assert time.monotonic() < deadline_s
        with pytest.raises(
            ProducerFencedError if is_v1 else InvalidTxnStateError,
            match="exceeds transaction_timeout_ms=100" if is_v1 else "or by its time-out",
        ):
            producer.commit_transaction()
    assert committed(fake) == [b"b"]


# Those who end it.


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_gets_over_what_brokers_lose(fake: FakeKafka, admin: Admin, is_commit: bool) -> None:
    prepared = [prepare(fake, f"x{number}", b"%d" % number) for number in range(9)]
    with fake.control() as cluster:
        faults = [
            cluster.faults.add(fault, ApiKey.END_TXN, times=2)
            for fault in (lose_response(closes=True), disconnect())
        ]
        faults.append(cluster.faults.add(disconnect(), ApiKey.FIND_COORDINATOR))
        for number in range(0, 9, 2):
            coordinator = cluster.coordinator(TRANSACTIONAL_IDS, f"x{number}")
            assert coordinator is not None
            cluster.move_coordinator(TRANSACTIONAL_IDS, f"x{number}", (coordinator.id + 1) % 3)
    end = admin.commit_prepared_transactions if is_commit else admin.abort_prepared_transactions
    end(prepared)
    end(prepared)
    assert [each.used_count for each in faults] == [2, 2, 1]
    # In version 2 the end of one may still be under way when its response comes.
    assert sorted(map(bytes, filter(None, committed(fake)))) == (
        [b"%d" % number for number in range(9)] if is_commit else []
    )


def test_a_coordinator_that_moves_in_between_is_found_again(fake: FakeKafka, admin: Admin) -> None:
    first, second = prepare(fake, "x", b"a"), prepare(fake, "y", b"b")

    def move(request: object) -> bool:
        if not moved:
            moved.append(True)
            cluster.move_coordinator(TRANSACTIONAL_IDS, "x", (coordinator_id + 1) % 3)
        return False

    moved: list[bool] = []
    with fake.control() as cluster:
        coordinator = cluster.coordinator(TRANSACTIONAL_IDS, "x")
        assert coordinator is not None
        coordinator_id = coordinator.id
        cluster.faults.add(disconnect(), ApiKey.END_TXN, when=move)
    admin.commit_prepared_transactions([first, second])
    assert moved
    assert sorted(map(bytes, filter(None, committed(fake)))) == [b"a", b"b"]


def test_what_is_not_ended_in_time_is_named(fake: FakeKafka, admin: Admin) -> None:
    prepared = [prepare(fake, name, name.encode()) for name in ("one", "two", "three")]
    with fake.control() as cluster:
        cluster.faults.add(
            lose_response(),
            ApiKey.END_TXN,
            times=None,
            when=lambda request: getattr(request, "transactional_id", "") != "two",
        )
        for name in ("one", "three"):  # their connections stay silent, and are theirs alone
            cluster.move_coordinator(TRANSACTIONAL_IDS, name, 1)
        cluster.move_coordinator(TRANSACTIONAL_IDS, "two", 2)
    with pytest.raises(AdminCallError, match="the commit of transactions: 2 of 3") as caught:
        admin.commit_prepared_transactions(prepared, timeout=0.5)
    assert set(caught.value.errors) == {"one", "three"}
    for error in caught.value.errors.values():
        assert isinstance(error, KafkaTimeoutError)
        assert "waited 500 ms for the commit of transactions one, three" in str(error)
    with pytest.raises(KafkaTimeoutError, match="for the commit of transactions one: "):
        admin.commit_prepared_transactions(prepared[:1], timeout=0.3)
    with fake.control() as cluster:
        cluster.faults.clear()
    admin.commit_prepared_transactions(prepared)
    assert sorted(map(bytes, filter(None, committed(fake)))) == [b"one", b"three", b"two"]


def test_what_is_refused_is_named_and_the_rest_is_ended(fake: FakeKafka, admin: Admin) -> None:
    open_, aborted, fenced = (prepare(fake, name, name.encode()) for name in ("o", "a", "f"))
    admin.abort_prepared_transactions([aborted])
    with opened(fake, transactional_id="f") as newer:
        newer.init_transactions()
    unknown = PreparedTransaction("none-such", 4711, 0, fenced.transaction_version)
    with pytest.raises(AdminCallError) as caught:
        admin.commit_prepared_transactions([aborted, open_, unknown, fenced])
    assert {name: type(error) for name, error in caught.value.errors.items()} == {
        "a": InvalidTxnStateError,
        "none-such": InvalidProducerIdMappingError,
        "f": ProducerFencedError,
    }
    assert committed(fake) == [b"o"]
    with pytest.raises(InvalidTxnStateError, match="It was committed before"):
        admin.abort_prepared_transactions([open_])


def test_one_of_several_that_is_refused_is_named_as_well(fake: FakeKafka, admin: Admin) -> None:
    first, second = prepare(fake, "x", b"a"), prepare(fake, "y", b"b")
    admin.abort_prepared_transactions([first])
    with pytest.raises(AdminCallError) as caught:
        admin.commit_prepared_transactions([first, second])
    assert set(caught.value.errors) == {"x"}
    with pytest.raises(InvalidTxnStateError, match=r"transactional_id 'x' .* cannot be committed"):
        admin.commit_prepared_transactions([first])
    admin.commit_prepared_transactions([])
    assert committed(fake) == [b"b"]


def test_an_end_in_version_1_gives_no_epoch_away(fake: FakeKafka, admin: Admin) -> None:
    prepared = prepare(fake, "x", b"a")
    admin.commit_prepared_transactions([prepared])
    with fake.control() as cluster:
        found = cluster.transactions.find("x")
        assert found is not None
        has_epochs = prepared.transaction_version == 2
        assert found.producer.epoch == prepared.producer_epoch + has_epochs
    assert committed(fake) == [b"a"]


def test_what_an_acl_forbids_says_so(fake: FakeKafka, admin: Admin) -> None:
    prepared = prepare(fake, "x", b"a")
    with fake.control() as cluster:
        cluster.faults.add(fail_with(TransactionalIdAuthorizationFailedError), ApiKey.END_TXN)
    with pytest.raises(TransactionalIdAuthorizationFailedError, match="allow this client WRITE"):
        admin.commit_prepared_transactions([prepared])


def test_without_brokers_an_end_comes_in_its_time() -> None:
    with (
        Admin(bootstrap_servers="localhost:1") as admin,
        pytest.raises(KafkaTimeoutError, match="waited 200 ms for the commit of transactions x"),
    ):
        admin.commit_prepared_transactions([PreparedTransaction("x", 1, 0, 2)], timeout=0.2)


# Two-phase commits.


def test_two_phase_commits_of_fake_brokers_are_those_of_their_settings() -> None:
    for is_listed, is_enabled in ((False, False), (True, False), (True, True)):
        settings = TransactionSettings(
            unstable_api_versions_enable=is_listed, transaction_two_phase_commit_enable=is_enabled
        )
        with (
            FakeKafka(transaction_settings=settings) as fake,
            opened(fake, transaction_two_phase_commit_enable=True) as producer,
        ):
            if is_enabled:
                producer.init_transactions()
                with fake.control() as cluster:
                    found = cluster.transactions.find("x")
                    assert found is not None
                    assert not found.has_time_out
                continue
            error = (
                TransactionalIdAuthorizationFailedError if is_listed else UnsupportedVersionError
            )
            with pytest.raises(error, match=r"transaction\.two\.phase\.commit\.enable=true"):
                producer.init_transactions()
