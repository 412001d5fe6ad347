"""Clients that outlive a task: the next task of the same worker process takes them over.

Spark runs many tasks one after the other in a Python worker, and ends workers that are idle for a
minute. A consumer that is kept saves the connections, the handshake and the metadata of each task.
A task has the client to itself; one whose task failed is closed, since it may be in any
state. Consumers and producers are kept apart, each with limits of its own (`IdleClients`).

Owner: the worker process.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from pykclient import Consumer, Producer
from spark_connector.idle_clients import IdleClients

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_Client = TypeVar("_Client", Consumer, Producer)

_consumers: Final = IdleClients[Consumer](lambda client: client.close())
_producers: Final = IdleClients[Producer](lambda client: client.close())


@contextmanager
def worker_consumer(settings: Mapping[str, object]) -> Iterator[Consumer]:
    """Provide a consumer with these settings and nothing assigned, for one task."""
    with _taken_over(_consumers, Consumer, settings) as consumer:
        yield consumer


@contextmanager
def worker_producer(settings: Mapping[str, object]) -> Iterator[Producer]:
    """Provide an idle producer with these settings, for one task that awaits its rows."""
    with _taken_over(_producers, Producer, settings) as producer:
        yield producer


def close_waiting() -> None:
    """Close the clients that wait for a next task of this process."""
    _consumers.close_all()
    _producers.close_all()


@contextmanager
def _taken_over(
    idle: IdleClients[_Client], kind: type[_Client], settings: Mapping[str, object]
) -> Iterator[_Client]:
    key = frozenset(settings.items())
    client = idle.take(key) or kind(settings)
    try:
        yield client
    except BaseException as error:
        # A generator is closed when the query has enough rows: nothing is wrong with the client.
        if not isinstance(error, GeneratorExit):
            client.close(timeout=0)
            raise
        _put_back(idle, key, client)
        raise
    _put_back(idle, key, client)


def _put_back(
    idle: IdleClients[_Client], key: frozenset[tuple[str, object]], client: _Client
) -> None:
    if isinstance(client, Consumer):
        # Gives back what it has fetched ahead.
        client.unsubscribe()
    # Another one may be there, of a task that ran beside this one and ended earlier.
    idle.put(key, client)
