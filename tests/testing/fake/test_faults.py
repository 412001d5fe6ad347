"""Faults: which requests they are for."""

from __future__ import annotations

import pytest

from pykclient.protocol.api_keys import ApiKey
from pykclient.protocol.messages.metadata import MetadataRequest
from pykclient.testing.fake import faults
from pykclient.testing.fake.faults import Faults

NAMED, UNNAMED = MetadataRequest(topics=[]), MetadataRequest(topics=None)


@pytest.mark.promise(
    "faults by API: respond, delay, drop, lose the response, disconnect, error code"
)
def test_a_fault_is_for_its_api_its_broker_and_the_requests_it_looks_for() -> None:
    waiting = Faults()
    fault = faults.drop()
    handle = waiting.add(
        fault, ApiKey.METADATA, broker_id=1, when=lambda request: request is NAMED, times=2
    )
    assert waiting.take(1, ApiKey.PRODUCE, NAMED) is None
    assert waiting.take(0, ApiKey.METADATA, NAMED) is None
    assert waiting.take(1, ApiKey.METADATA, UNNAMED) is None
    assert handle.used_count == 0
    taken = [waiting.take(1, ApiKey.METADATA, NAMED) for _ in range(3)]
    assert taken == [fault, fault, None]
    assert handle.used_count == 2


def test_the_oldest_that_fits_comes_first_and_what_was_taken_back_never() -> None:
    waiting = Faults()
    first, second, third = (faults.delay_response(delay_ms) for delay_ms in (1, 2, 3))
    waiting.add(first)
    taken_back = waiting.add(second, times=None)
    waiting.add(third)
    assert waiting.take(0, ApiKey.METADATA, NAMED) == first
    assert waiting.take(0, ApiKey.METADATA, NAMED) == second
    taken_back.remove()
    taken_back.remove()
    assert waiting.take(0, ApiKey.METADATA, NAMED) == third
    assert waiting.take(0, ApiKey.METADATA, NAMED) is None
    waiting.add(first, times=None)
    waiting.clear()
    assert waiting.take(0, ApiKey.METADATA, NAMED) is None
