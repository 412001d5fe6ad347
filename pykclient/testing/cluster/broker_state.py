"""What a broker of a test cluster is doing, and what may be done to it then.

Owner: none; it holds no state.
"""

from __future__ import annotations

from enum import Enum

from pykclient.errors.base import UsageError

__all__ = ["BrokerState", "check_allowed"]


class BrokerState(Enum):
    """What a server's process or container is doing."""

    STOPPED = "stopped"
    RUNNING = "running"
    PAUSED = "paused"


# What may be done to a broker in which state. Every one can also end by itself.
_ALLOWED_IN: dict[str, frozenset[BrokerState]] = {
    "start": frozenset({BrokerState.STOPPED}),
    "pause": frozenset({BrokerState.RUNNING}),
    "resume": frozenset({BrokerState.PAUSED}),
    "stop": frozenset({BrokerState.RUNNING}),
    "kill": frozenset({BrokerState.RUNNING, BrokerState.PAUSED}),
}


def check_allowed(action: str, name: str, state: BrokerState) -> None:
    """Check that `action` fits the server `name` in its `state`.

    Raises:
        UsageError: it does not; says which state it would take.
    """
    if state not in _ALLOWED_IN[action]:
        wanted = " or ".join(sorted(state.value for state in _ALLOWED_IN[action]))
        raise UsageError(f"{name} is {state.value}; to {action} it, it must be {wanted}")
