"""Clients that outlive a task: the next task of the same worker process takes them over.

Spark runs many tasks one after the other in a Python worker, and ends workers that are idle for a
minute. A consumer that is kept saves the connections, the handshake and the metadata of each task.
A task has the client to itself; one whose task failed is closed, since it may be in any
state. Clients of another process, which a fork has copied, are never touched.

Owner: the worker process.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from pykclient import Consumer, Producer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KEPT_MAX: Final = 4
"""Clients that wait for a next task. More belong to queries that have ended."""

_Client = TypeVar("_Client", Consumer, Producer)

_waiting: dict[tuple[int, type, frozenset[tuple[str, object]]], Consumer | Producer] = {}


@contextmanager
def worker_consumer(settings: Mapping[str, object]) -> Iterator[Consumer]:
    """A consumer with these settings and nothing assigned, for one task."""
    with _taken_over(Consumer, settings) as consumer:
        yield consumer


@contextmanager
def worker_producer(settings: Mapping[str, object]) -> Iterator[Producer]:
    """A producer with these settings and nothing under way, for one task that awaits its rows."""
    with _taken_over(Producer, settings) as producer:
        yield producer


def close_waiting() -> None:
    """Close the clients that wait for a next task of this process."""
    for key in [key for key in _waiting if key[0] == os.getpid()]:
        _waiting.pop(key).close()


@contextmanager
def _taken_over(kind: type[_Client], settings: Mapping[str, object]) -> Iterator[_Client]:
    key = (os.getpid(), kind, frozenset(settings.items()))
    client = _waiting.pop(key, None) or kind(settings)
    assert isinstance(client, kind)
    try:
        yield client
    except BaseException as error:
        # A generator is closed when the query has enough rows: nothing is wrong with the client.
        if not isinstance(error, GeneratorExit):
            client.close(timeout=0)
            raise
        _put_back(key, client)
        raise
    _put_back(key, client)


def _put_back(
    key: tuple[int, type, frozenset[tuple[str, object]]], client: Consumer | Producer
) -> None:
    if isinstance(client, Consumer):
        # Gives back what it has fetched ahead.
        client.unsubscribe()
    if (other := _waiting.pop(key, None)) is not None:
        # Of a task that ran beside this one, and ended earlier.
        other.close()
    _waiting[key] = client
    for kept in [other for other in _waiting if other[0] == key[0]][:-KEPT_MAX]:
        _waiting.pop(kept).close()
