"""Name resolution answers by mailbox, whatever the system's resolver does."""

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

Answer = tuple[Address, ...] | ConnectionFailedError
Found = list[tuple[int, int, int, str, tuple[str, int]]]
PATIENCE_S = 10.0


class Names:
    """Stands in for the system's resolver: names answer when a test lets them."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.outcome: Callable[[str, int], Found] = lambda host, port: [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", port))
        ]

    def getaddrinfo(self, host: str, port: int, **options: int) -> Found:
        if options.get("flags"):
            raise socket.gaierror("not a number")
        self.asked.append(host)
        assert self.gate.wait(PATIENCE_S)
        return self.outcome(host, port)


class Desk:
    """A resolver, and the answers that it delivered."""

    def __init__(self) -> None:
        self.woken = threading.Semaphore(0)
        self.resolver = Resolver(self.woken.release)
        self.answers: list[Answer] = []

    def resolve(self, host: str, port: int = 9092) -> None:
        self.resolver.resolve(host, port, self.answers.append)

    def await_answers(self, count: int = 1) -> list[Answer]:
        for _ in range(count):
            assert self.woken.acquire(timeout=PATIENCE_S)
        self.resolver.deliver()
        return self.answers


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names.getaddrinfo)
    yield names
    names.gate.set()


def failed(answers: list[Answer]) -> str:
    [answer] = answers
    assert isinstance(answer, ConnectionFailedError)
    return str(answer)


@pytest.mark.parametrize(
    ("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)]
)
def test_numbers_need_no_look_up(desk: Desk, host: str, family: socket.AddressFamily) -> None:
    before = threading.active_count()
    desk.resolve(host)
    assert threading.active_count() == before
    assert desk.answers == [], "nobody is called from within resolve"
    [answer] = desk.await_answers()
    assert not isinstance(answer, ConnectionFailedError)
    [(found_family, address)] = answer
    assert found_family == family
    assert address[:2] == (host, 9092)


def test_a_name_gives_all_its_addresses_once_each_in_order(desk: Desk, names: Names) -> None:
    def several(host: str, port: int) -> Found:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in ("10.0.0.2", "10.0.0.1", "10.0.0.2")
        ]

    names.outcome = several
    desk.resolve("broker")
    [addresses] = desk.await_answers()
    assert addresses == (
        (socket.AF_INET, ("10.0.0.2", 9092)),
        (socket.AF_INET, ("10.0.0.1", 9092)),
    )


@pytest.mark.promise("the look-up of a name blocks no call")
def test_a_look_up_that_hangs_holds_nobody_up(desk: Desk, names: Names) -> None:
    names.gate.clear()
    desk.resolve("broker")
    desk.resolver.deliver()
    assert desk.answers == []
    names.gate.set()
    assert len(desk.await_answers()) == 1


def test_who_asks_for_the_same_name_meanwhile_gets_the_same_answer(
    desk: Desk, names: Names
) -> None:
    names.gate.clear()
    desk.resolve("broker")
    desk.resolve("broker")
    names.gate.set()
    first, second = desk.await_answers()
    assert first == second
    assert names.asked == ["broker"]


def test_a_name_is_looked_up_anew_each_time(desk: Desk, names: Names) -> None:
    for _ in range(2):
        desk.resolve("broker")
        desk.await_answers()
    assert names.asked == ["broker", "broker"]


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

    names.outcome = fail
    desk.resolve("broker")
    text = failed(desk.await_answers())
    assert text.startswith("the host name 'broker' cannot be resolved: ")
    assert reason in text
    assert "check bootstrap_servers, or the broker's advertised.listeners" in text


@pytest.mark.parametrize("host", ["a\x00b", "x" * 300, "a." * 200, ".", "\udcff"])
def test_what_the_systems_own_resolver_chokes_on_is_an_error_too(desk: Desk, host: str) -> None:
    desk.resolve(host)
    assert "cannot be resolved" in failed(desk.await_answers())


@pytest.mark.promise("the look-up of a name blocks no call")
def test_look_ups_that_hang_are_limited_in_number(desk: Desk, names: Names) -> None:
    names.gate.clear()
    for number in range(LOOKUPS_MAX):
        desk.resolve(f"slow-{number}")
    desk.resolve("one-too-many")
    text = failed(desk.await_answers())
    assert f"'one-too-many' was not looked up: {LOOKUPS_MAX} other look-ups" in text
    assert "one-too-many" not in names.asked
    names.gate.set()
    desk.await_answers(LOOKUPS_MAX)
    desk.resolve("one-too-many")
    desk.await_answers()
    assert len(desk.answers) == LOOKUPS_MAX + 2
    assert names.asked[-1] == "one-too-many"


def test_a_look_up_for_which_no_thread_can_be_started_is_an_error_and_the_next_one_is_made(
    desk: Desk, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limits:
        limits.setattr(threading.Thread, "start", refuse)
        desk.resolve("broker")
        text = failed(desk.await_answers())
    assert "'broker' was not looked up: no thread could be started" in text
    assert "ulimit -u" in text
    desk.answers.clear()
    desk.resolve("broker")
    desk.await_answers()
    assert not isinstance(desk.answers[0], ConnectionFailedError)


def test_an_interrupt_in_the_middle_leaves_the_name_to_be_looked_up(
    desk: Desk, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: threading.Thread) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as signals:
        signals.setattr(threading.Thread, "start", interrupt)
        with pytest.raises(KeyboardInterrupt):
            desk.resolve("broker")
    desk.resolve("broker")
    desk.await_answers()
    assert names.asked == ["broker"]


def test_a_look_up_that_hangs_keeps_nothing_of_who_gave_up(desk: Desk, names: Names) -> None:
    names.gate.clear()
    kept = []
    for _ in range(10):
        on_answer = Waiting()
        kept.append(weakref.ref(on_answer))
        desk.resolver.resolve("broker", 9092, on_answer)
        desk.resolver.forget(on_answer)
    del on_answer
    assert not any(each() for each in kept)
    desk.resolve("broker")
    names.gate.set()
    assert len(desk.await_answers()) == 1
    assert names.asked == ["broker"], "the look-up under way serves who comes later"


class Waiting:
    """Somebody who waits, whom a weak reference may follow."""

    def __call__(self, _: Answer) -> None:
        raise AssertionError("it was forgotten")


def test_a_name_is_looked_up_again_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()

    def interrupted(*_: object, **__: object) -> Found:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", interrupted)
        with pytest.raises(KeyboardInterrupt):
            desk.resolve("127.0.0.1")
    desk.resolve("127.0.0.1")
    assert len(desk.await_answers()) == 1
