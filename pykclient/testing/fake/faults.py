"""Faults that a test injects, by API, once, several times or until removed.

A fault is a value; `Faults` holds those that wait for a matching request, oldest first.

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
    """A fault that affects a request, created by the functions of this module.

    `acts` says whether the broker carries out the request. The response: `response` replaces it,
    `error` refuses the request, `is_lost` drops this and all later responses of the connection,
    `closes` closes the connection instead, `delay_ms` delays it.
    """

    acts: bool = True
    response: Callable[[Request], Message] | None = None
    error: type[BrokerError] | None = None
    is_lost: bool = False
    closes: bool = False
    delay_ms: int = 0


def respond_with(response: Message | Callable[[Request], Message]) -> Fault:
    """Do not act; respond with this message, or with the function's result for the request."""
    if callable(response):
        return Fault(acts=False, response=response)
    return Fault(acts=False, response=lambda _: response)


def fail_with(error: type[BrokerError]) -> Fault:
    """Do not act; refuse everything in the request with this error."""
    return Fault(acts=False, error=error)


def delay_response(delay_ms: int) -> Fault:
    """Act at once, and delay the response."""
    return Fault(delay_ms=delay_ms)


def drop() -> Fault:
    """Do not act and send nothing; the connection stays open and silent."""
    return Fault(acts=False, is_lost=True)


def lose_response(*, closes: bool = False) -> Fault:
    """Act, but send nothing; the connection stays silent, or is closed if `closes`."""
    return Fault(is_lost=not closes, closes=closes)


def disconnect() -> Fault:
    """Do not act; close the connection."""
    return Fault(acts=False, closes=True)


# Former names.
answer_with, delay_answer, lose_answer = respond_with, delay_response, lose_response


@dataclass(slots=True)
class FaultHandle:
    """A fault that was added: counts its uses and can remove it."""

    fault: Fault
    api_key: ApiKey | None
    broker_id: int | None
    remaining: int | None
    when: Callable[[Request], bool] | None
    used_count: int = 0
    _faults: list[FaultHandle] = field(default_factory=list, repr=False)

    def remove(self) -> None:
        """Remove the fault; no effect if it is used up."""
        self._faults[:] = [each for each in self._faults if each is not self]

    def fits(self, broker_id: int, api_key: int, request: Request) -> bool:
        """Return whether the fault applies to this request."""
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
        """Use `fault` for the next requests that match.

        For `api_key` and `broker_id`, None means any; for `times`, until the fault is removed.
        `when` decides by the request.
        """
        handle = FaultHandle(replace(fault), api_key, broker_id, times, when, 0, self._waiting)
        self._waiting.append(handle)
        return handle

    def take(self, broker_id: int, api_key: int, request: Request) -> Fault | None:
        """Return the fault for this request and count its use; None if there is none."""
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
        """Remove all faults."""
        self._waiting.clear()
