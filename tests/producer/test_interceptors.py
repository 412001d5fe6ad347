"""ProducerInterceptors: the order of the chain, and the effect of one that fails."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace

import pytest

from pykclient.errors import ConfigError, KafkaError
from pykclient.network.log import REPEAT_MS
from pykclient.producer.interceptors import ProducerInterceptor, ProducerInterceptors
from pykclient.producer.record import ProducerRecord, RecordMetadata
from pykclient.testing.clock import ManualClock

METADATA = RecordMetadata("t", 0, 5, 9)


class Tagging:
    """An interceptor that appends its tag to each value, and records its calls."""

    def __init__(self, tag: bytes, calls: list[object]) -> None:
        self.tag = tag
        self.calls = calls

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        assert isinstance(record.value, bytes)
        return replace(record, value=record.value + self.tag)

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.calls.append((self.tag, metadata, error))

    def close(self) -> None:
        self.calls.append((self.tag, "closed"))


class Failing:
    """An interceptor that fails in every method."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise ValueError("on_send")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        raise ValueError("on_acknowledgement")

    def close(self) -> None:
        raise ValueError("close")


@pytest.mark.promise("interceptors see every record and every acknowledgement")
def test_a_record_passes_through_all_in_order() -> None:
    calls: list[object] = []
    chain = ProducerInterceptors([Tagging(b"1", calls), Tagging(b"2", calls)], clock_ms=int)
    assert chain.on_send(ProducerRecord("t", b"v")).value == b"v12"


def test_one_that_fails_is_logged_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[object] = []
    chain = ProducerInterceptors([Failing(), Tagging(b"1", calls)], clock_ms=int)
    with caplog.at_level(logging.WARNING, "pykclient.producer"):
        assert chain.on_send(ProducerRecord("t", b"v")).value == b"v1"
        chain.on_acknowledgement(METADATA, None)
        chain.close()
    assert calls == [(b"1", METADATA, None), (b"1", "closed")]
    assert len(caplog.records) == 3


def test_one_that_fails_at_each_record_is_logged_with_a_traceback_once_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    chain = ProducerInterceptors([Failing()], clock_ms=lambda: clock.now_ms)
    with caplog.at_level(logging.WARNING, "pykclient.producer"):
        for _ in range(1_000):
            chain.on_send(ProducerRecord("t", b"v"))
            chain.on_acknowledgement(METADATA, None)
        assert [line.exc_info is not None for line in caplog.records] == [True, True]
        clock.advance(REPEAT_MS)
        chain.on_send(ProducerRecord("t", b"v"))
        assert "on_send raised ValueError" in caplog.records[-1].getMessage()
        assert "(999 times since it was last logged)" in caplog.records[-1].getMessage()
        chain.close()
    rest, closed = caplog.records[-2:]
    assert "on_acknowledgement raised ValueError" in rest.getMessage()
    assert "(999 times since it was last logged)" in rest.getMessage()
    assert rest.exc_info is None
    assert "failed to close" in closed.getMessage()


def test_a_class_that_inherits_the_interface_defines_what_it_needs() -> None:
    class Counting(ProducerInterceptor):
        acknowledged_count = 0

        def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
            self.acknowledged_count += 1

    counting = Counting()
    chain = ProducerInterceptors.from_setting([counting], clock_ms=int)
    record = ProducerRecord("t", b"v")
    assert chain.on_send(record) is record
    chain.on_acknowledgement(METADATA, None)
    assert counting.acknowledged_count == 1


class Forgetful:
    """An interceptor that returns the value instead of the record."""

    def on_send(self, record: ProducerRecord) -> object:
        return record.value

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        pass


def test_one_that_returns_no_record_is_logged_and_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chain = ProducerInterceptors.from_setting([Forgetful, Tagging(b"1", [])], clock_ms=int)
    assert chain.on_send(ProducerRecord("t", b"a secret")).value == b"a secret1"
    assert "Forgetful" in caplog.text
    assert "returned a bytes" in caplog.text
    assert "secret" not in caplog.text


def test_interceptors_are_called_before_the_callback() -> None:
    calls: list[object] = []
    chain = ProducerInterceptors([Tagging(b"1", calls)], clock_ms=int)
    error = KafkaError("no")
    chain.before(lambda metadata, error: calls.append((metadata, error)))(METADATA, error)
    chain.before(None)(METADATA, None)
    assert calls == [(b"1", METADATA, error), (METADATA, error), (b"1", METADATA, None)]


def test_a_setting_names_classes_objects_or_where_to_import_them() -> None:
    chain = ProducerInterceptors.from_setting(
        [Failing, Tagging(b"1", []), "tests.producer.test_interceptors:Failing"],
        clock_ms=int,
    )
    assert chain.on_send(ProducerRecord("t", b"v")).value == b"v1"
    assert not ProducerInterceptors.from_setting([], clock_ms=int)


def test_an_object_that_is_no_interceptor_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"interceptor\.classes.*on_send"):
        ProducerInterceptors.from_setting([object()], clock_ms=int)


@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit, KeyboardInterrupt])
def test_whatever_one_raises_the_others_and_the_callback_are_called(
    error: type[BaseException],
) -> None:
    class Leaving(Failing):
        def on_acknowledgement(self, metadata: RecordMetadata, _: Exception | None) -> None:
            raise error

        def close(self) -> None:
            raise error

    calls: list[str] = []

    class Counting(Failing):
        def on_acknowledgement(self, metadata: RecordMetadata, _: Exception | None) -> None:
            calls.append("interceptor")

        def close(self) -> None:
            calls.append("closed")

    interceptors = ProducerInterceptors([Leaving(), Counting()], clock_ms=int)
    call = interceptors.before(lambda *_: calls.append("callback"))
    expected = contextlib.nullcontext() if issubclass(error, Exception) else pytest.raises(error)
    with expected:
        call(RecordMetadata("t", 0, 0, 0), None)
    interceptors.close()
    assert calls == ["interceptor", "callback", "closed"]
