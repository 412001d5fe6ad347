"""What a test makes go wrong: faults by API, used once, some times, or until they are removed.

A fault is a value; `Faults` keeps those that wait for a request that they fit, the oldest first.

Owner: the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.errors.base import BrokerError
    from pykclient.protocol.api_keys import ApiKey
    from pykclient.protocol.message import Message, Request


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that happens to a request; made by the functions of this module.

    `acts` says whether the broker does what was requested. Of what comes back: `response` stands in
    its place, `error` refuses, `is_lost` keeps it back for good with all later ones of the
    connection, `closes` closes that instead, `delay_ms` holds it back.
    """

    acts: bool = True
    response: Callable[[Request], Message] | None = None
    error: type[BrokerError] | None = None
    is_lost: bool = False
    closes: bool = False
    delay_ms: int = 0


def respond_with(response: Message | Callable[[Request], Message]) -> Fault:
    """Do nothing, and respond with this, or what the function makes of the request."""
    if callable(response):
        return Fault(acts=False, response=response)
    return Fault(acts=False, response=lambda _: response)


def fail_with(error: type[BrokerError]) -> Fault:
    """Do nothing, and refuse everything that was requested with this error's code."""
    return Fault(acts=False, error=error)


def delay_response(delay_ms: int) -> Fault:
    """Act at once, and respond that much later."""
    return Fault(delay_ms=delay_ms)


def drop() -> Fault:
    """Do nothing and send nothing; the connection stays, and stays silent."""
    return Fault(acts=False, is_lost=True)


def lose_response(*, closes: bool = False) -> Fault:
    """Act and send nothing; the connection stays silent, or is closed if `closes`."""
    return Fault(is_lost=not closes, closes=closes)


def disconnect() -> Fault:
    """Do nothing and close the connection."""
    return Fault(acts=False, closes=True)


# The names of before.
answer_with, delay_answer, lose_answer = respond_with, delay_response, lose_response


@dataclass(slots=True)
class FaultHandle:
    """A fault that was added: how often it was used, and a way to take it back."""

    fault: Fault
    api_key: ApiKey | None
    broker_id: int | None
    remaining: int | None
    when: Callable[[Request], bool] | None
    used_count: int = 0
    _faults: list[FaultHandle] = field(default_factory=list, repr=False)

    def remove(self) -> None:
        """Never use it again; no effect when it is used up."""
        self._faults[:] = [each for each in self._faults if each is not self]

    def fits(self, broker_id: int, api_key: int, request: Request) -> bool:
        """Whether it is meant for this request."""
        return (
            self.api_key in (None, api_key)
            and self.broker_id in (None, broker_id)
            and (self.when is None or self.when(request))
        )


class Faults:
    """The faults of one cluster."""

    def __init__(self) -> None:
        self._waiting: list[FaultHandle] = []

    def add(
        self,
        fault: Fault,
        api_key: ApiKey | None = None,
        *,
        broker_id: int | None = None,
        times: int | None = 1,
        when: Callable[[Request], bool] | None = None,
    ) -> FaultHandle:
        """Use `fault` for the next requests that fit.

        `api_key` and `broker_id` None mean any; `times` None means until it is removed; `when`
        looks at the request.
        """
        handle = FaultHandle(replace(fault), api_key, broker_id, times, when, 0, self._waiting)
        self._waiting.append(handle)
        return handle

    def take(self, broker_id: int, api_key: int, request: Request) -> Fault | None:
        """The fault for this request, used by that once more; None when it goes well."""
        for handle in self._waiting:
            if handle.fits(broker_id, api_key, request):
                handle.used_count += 1
                if handle.remaining is not None:
                    handle.remaining -= 1
                    if handle.remaining == 0:
                        handle.remove()
                return handle.fault
        return None

    def clear(self) -> None:
        """Remove all."""
        self._waiting.clear()
