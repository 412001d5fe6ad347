"""Schemas that the generator does not know are refused; unstable versions are left out."""

from __future__ import annotations

import json

import pytest

from tools.protogen.spec import parse, parse_all
from tools.protogen.versions import Versions


def schema(**changes: object) -> str:
    return json.dumps(
        {
            "apiKey": 99,
            "type": "request",
            "name": "TryRequest",
            "validVersions": "0-3",
            "flexibleVersions": "2+",
            "fields": [{"name": "Id", "type": "int32", "versions": "0+"}],
        }
        | changes
    )


def test_the_last_version_is_left_out_while_it_is_unstable() -> None:
    assert parse(schema(latestVersionUnstable=True)).versions == Versions(0, 2)
    assert parse(schema(latestVersionUnstable=False)).versions == Versions(0, 3)


def test_of_some_apis_the_unstable_version_is_generated_beside_the_stable_ones() -> None:
    texts = {
        "TryRequest": schema(latestVersionUnstable=True),
        "TryResponse": schema(name="TryResponse", type="response"),
    }
    for message in parse_all(texts, unstable_apis={"Try"}).values():
        assert (message.versions, message.stable) == (Versions(0, 3), Versions(0, 2))
        assert message.unstable == 3
    stable = parse(schema(), unstable_apis={"Try"})
    assert (stable.versions, stable.stable, stable.unstable) == (*[Versions(0, 3)] * 2, None)


def test_response_has_no_version_that_its_request_lacks() -> None:
    texts = {
        "TryRequest": schema(latestVersionUnstable=True),
        "TryResponse": schema(name="TryResponse", type="response"),
    }
    assert parse_all(texts)["TryResponse"].versions == Versions(0, 2)


@pytest.mark.parametrize(
    "field",
    [
        {"name": "Id", "type": "int128", "versions": "0+"},
        {"name": "Id", "type": "int32", "versions": "0+", "encrypted": True},
    ],
)
def test_what_the_generator_does_not_know_is_refused(field: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"unknown type int128|properties .*'encrypted'"):
        parse(schema(fields=[field]))


def test_unknown_property_of_a_message_is_refused() -> None:
    with pytest.raises(ValueError, match="TryRequest has properties"):
        parse(schema(compression="zstd"))
