"""What the message of an error tells of its cause."""

from __future__ import annotations

import pytest

from pykclient.errors.cause import LENGTH_MAX, describe_cause

SECRET = b"\xffa secret that belongs in no log"


def test_it_tells_the_type_and_what_it_says() -> None:
    assert describe_cause(ValueError("no twos")) == "ValueError: no twos"
    assert describe_cause(ValueError()) == "ValueError"


def test_a_value_that_could_not_be_decoded_is_not_told() -> None:
    with pytest.raises(UnicodeDecodeError) as raised:
        SECRET.decode()
    assert "secret" in repr(raised.value)
    assert "secret" not in describe_cause(raised.value)
    assert "can't decode byte 0xff in position 0" in describe_cause(raised.value)


def test_of_a_long_text_the_beginning_is_told() -> None:
    assert describe_cause(ValueError("x" * 10_000)) == "ValueError: " + "x" * LENGTH_MAX
