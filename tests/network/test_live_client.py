"""LiveClient: clients stay in their process, what makes them travels."""

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


@pytest.mark.parametrize("kind", CLIENTS)
def test_what_makes_a_client_can_be_pickled(kind: type[Client]) -> None:
    make = pickle.loads(pickle.dumps(partial(kind, {"bootstrap.servers": "localhost:9"})))
    with make() as client:
        assert type(client) is kind
