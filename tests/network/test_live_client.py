"""LiveClient: clients stay in their process; the settings to create them can be sent."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pykclient import Admin, Consumer, Producer
from pykclient.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

CLIENTS = [Admin, Consumer, Producer]
Client = Admin | Consumer | Producer


@pytest.mark.promise(
    "a child process gets `ForkedClientError` from every call; clients refuse to be pickled"
)
@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("send", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_live_client_is_refused_with_the_reason_and_the_cure(
    kind: type[Client], send: Callable[[object], object]
) -> None:
    with (
        kind(bootstrap_servers="localhost:9") as client,
        pytest.raises(UsageError, match=rf"a {kind.__name__} cannot be pickled.*functools.partial"),
    ):
        send(client)


@pytest.mark.promise(
    "a child process gets `ForkedClientError` from every call; clients refuse to be pickled"
)
@pytest.mark.parametrize("kind", CLIENTS)
def test_what_makes_a_client_can_be_pickled(kind: type[Client]) -> None:
    make = pickle.loads(pickle.dumps(partial(kind, {"bootstrap.servers": "localhost:9"})))
    with make() as client:
        assert type(client) is kind


def test_a_client_shows_its_id_its_addresses_its_group_and_its_state() -> None:
    servers = "127.0.0.1:1,127.0.0.1:2"
    secret = {"client_id": "c-1", "bootstrap_servers": servers}
    clients: dict[str, Client] = {
        "Admin": Admin(secret),
        "Consumer": Consumer(secret, group_id="my group"),
        "Producer": Producer(secret),
    }
    for kind, client in clients.items():
        group = ", group 'my group'" if kind == "Consumer" else ""
        assert repr(client) == f"<{kind} c-1 at {servers}{group}: open>"
        client.close(0)
        assert repr(client) == f"<{kind} c-1 at {servers}{group}: closed>"


def test_clients_without_a_name_differ_in_it() -> None:
    with (
        Consumer(bootstrap_servers="127.0.0.1:1", group_id="g") as first,
        Consumer(bootstrap_servers="127.0.0.1:1", group_id="g") as second,
    ):
        assert repr(first).startswith("<Consumer consumer-g-")
        assert repr(first) != repr(second)
