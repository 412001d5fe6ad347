"""Name resolution delivers results to a mailbox, whatever the system's resolver does."""

from __future__ import annotations

import socket
import threading
import weakref
from typing import TYPE_CHECKING

import pytest

from pykclient.errors import ConnectionFailedError
from pykclient.network.io.resolver import LOOKUPS_MAX, Address, Resolver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Result = tuple[Address, ...] | ConnectionFailedError
Found = list[tuple[int, int, int, str, tuple[str, int]]]
PATIENCE_S = 10.0


class Names:
    """A replacement for the system's resolver, which finds names when a test allows it."""

    def __init__(self) -> None:
        self.looked_up: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.completion: Callable[[str, int], Found] = lambda host, port: [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", port))
        ]

    def getaddrinfo(self, host: str, port: int, **options: int) -> Found:
        if options.get("flags"):
            raise socket.gaierror("not a number")
        self.looked_up.append(host)
        assert self.gate.wait(PATIENCE_S)
        return self.completion(host, port)


class Desk:
    """A resolver and its results."""

    def __init__(self) -> None:
        self.woken = threading.Semaphore(0)
        self.resolver = Resolver(self.woken.release)
        self.results: list[Result] = []

    def resolve(self, host: str, port: int = 9092) -> None:
        self.resolver.resolve(host, port, self.results.append)

    def await_results(self, count: int = 1) -> list[Result]:
        for _ in range(count):
            assert self.woken.acquire(timeout=PATIENCE_S)
        self.resolver.deliver()
        return self.results


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names.getaddrinfo)
    yield names
    names.gate.set()


def failed(results: list[Result]) -> str:
    [result] = results
    assert isinstance(result, ConnectionFailedError)
    return str(result)


@pytest.mark.parametrize(
    ("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)]
)
def test_numbers_need_no_look_up(desk: Desk, host: str, family: socket.AddressFamily) -> None:
    before = threading.active_count()
    desk.resolve(host)
    assert threading.active_count() == before
    assert desk.results == [], "nothing is called from within resolve"
    [result] = desk.await_results()
    assert not isinstance(result, ConnectionFailedError)
    [(found_family, address)] = result
    assert found_family == family
    assert address[:2] == (host, 9092)


def test_a_name_gives_all_its_addresses_once_each_in_order(desk: Desk, names: Names) -> None:
    def several(host: str, port: int) -> Found:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in ("10.0.0.2", "10.0.0.1", "10.0.0.2")
        ]

    names.completion = several
    desk.resolve("broker")
    [addresses] = desk.await_results()
    assert addresses == (
        (socket.AF_INET, ("10.0.0.2", 9092)),
        (socket.AF_INET, ("10.0.0.1", 9092)),
    )


def test_a_look_up_that_hangs_holds_nothing_up(desk: Desk, names: Names) -> None:
    names.gate.clear()
    desk.resolve("broker")
    desk.resolver.deliver()
    assert desk.results == []
    names.gate.set()
    assert len(desk.await_results()) == 1


def test_another_attempt_at_the_same_name_gets_the_same_response(desk: Desk, names: Names) -> None:
    names.gate.clear()
    desk.resolve("broker")
    desk.resolve("broker")
    names.gate.set()
    first, second = desk.await_results()
    assert first == second
    assert names.looked_up == ["broker"]


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service"),
        (UnicodeError("label too long"), "label too long"),
        (ValueError("embedded null character"), "embedded null character"),
        (OverflowError("port must be 0-65535"), "port must be"),
        (OSError("something else"), "something else"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_name_that_cannot_be_resolved_is_an_error_with_its_cure(
    desk: Desk, names: Names, raised: Exception, reason: str
) -> None:
    def fail(host: str, port: int) -> Found:
        raise raised

    names.completion = fail
    desk.resolve("broker")
    text = failed(desk.await_results())
    assert text.startswith("the host name 'broker' cannot be resolved: ")
    assert reason in text
    assert "check bootstrap_servers, or the broker's advertised.listeners" in text


@pytest.mark.parametrize("host", ["a\x00b", "x" * 300, "a." * 200, ".", "\udcff"])
def test_what_the_systems_own_resolver_chokes_on_is_an_error_too(desk: Desk, host: str) -> None:
    desk.resolve(host)
    assert "cannot be resolved" in failed(desk.await_results())


def test_look_ups_that_hang_are_limited_in_number(desk: Desk, names: Names) -> None:
    names.gate.clear()
    for number in range(LOOKUPS_MAX):
        desk.resolve(f"slow-{number}")
    desk.resolve("one-too-many")
    text = failed(desk.await_results())
    assert f"'one-too-many' was not looked up: {LOOKUPS_MAX} other lookups" in text
    assert "one-too-many" not in names.looked_up
    names.gate.set()
    desk.await_results(LOOKUPS_MAX)
    desk.resolve("one-too-many")
    desk.await_results()
    assert len(desk.results) == LOOKUPS_MAX + 2
    assert names.looked_up[-1] == "one-too-many"


def test_a_look_up_for_which_no_thread_can_be_started_is_an_error_and_the_next_one_is_made(
    desk: Desk, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limits:
        limits.setattr(threading.Thread, "start", refuse)
        desk.resolve("broker")
        text = failed(desk.await_results())
    assert "'broker' was not looked up: no thread could be started" in text
    assert "ulimit -u" in text
    desk.results.clear()
    desk.resolve("broker")
    desk.await_results()
    assert not isinstance(desk.results[0], ConnectionFailedError)


@pytest.mark.parametrize(("owner", "name"), [(threading.Thread, "start"), (socket, "getaddrinfo")])
def test_a_name_is_looked_up_again_after_an_interrupt(
    desk: Desk, names: Names, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as signals:
        signals.setattr(owner, name, interrupt)
        with pytest.raises(KeyboardInterrupt):
            desk.resolve("broker")
    desk.resolve("broker")
    desk.await_results()
    assert names.looked_up == ["broker"]


def test_a_look_up_that_hangs_keeps_nothing_of_an_attempt_given_up(
    desk: Desk, names: Names
) -> None:
    names.gate.clear()
    kept = []
    for _ in range(10):
        on_result = Waiting()
        kept.append(weakref.ref(on_result))
        desk.resolver.resolve("broker", 9092, on_result)
        desk.resolver.forget(on_result)
    del on_result
    assert not any(each() for each in kept)
    desk.resolve("broker")
    names.gate.set()
    assert len(desk.await_results()) == 1
    assert names.looked_up == ["broker"], "the look-up under way serves later attempts"


class Waiting:
    """A callback that a weak reference can refer to."""

    def __call__(self, _: Result) -> None:
        raise AssertionError("it was forgotten")
