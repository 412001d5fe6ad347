"""A broker that serves a log, and a consumer that reads its first partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.consumer.serving_port import A, ServingPort, consumer_over

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.consumer.consumer import Consumer


@pytest.fixture
def port() -> ServingPort:
    return ServingPort(2)


@pytest.fixture
def consumer(port: ServingPort) -> Iterator[Consumer]:
    with consumer_over(port, A) as consumer:
        yield consumer
