"""Clients that wait for their next use, by their number and their age."""

from __future__ import annotations

from spark_connector.idle_clients import IdleClients


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_client_is_closed_when_it_was_idle_for_too_long() -> None:
    closed: list[str] = []
    clock = Clock()
    idle = IdleClients[str](closed.append, idle_s_max=60, now_s=clock)
    idle.put(1, "first")
    clock.now_s += 61
    idle.put(2, "second")
    assert closed == ["first"]
    assert idle.take(1) is None
    clock.now_s += 60
    idle.put(3, "third")
    assert closed == ["first"]


def test_of_too_many_clients_the_one_that_is_idle_longest_is_closed() -> None:
    closed: list[str] = []
    idle = IdleClients[str](closed.append, count_max=2)
    idle.put(1, "first")
    idle.put(2, "second")
    assert idle.take(1) == "first"
    idle.put(1, "first")
    idle.put(3, "third")
    assert closed == ["second"]


def test_another_client_under_the_same_key_is_closed() -> None:
    closed: list[str] = []
    idle = IdleClients[str](closed.append)
    for client in ("first", "first", "second"):
        idle.put(1, client)
    assert closed == ["first"]
    idle.close_all()
    assert closed == ["first", "second"]
