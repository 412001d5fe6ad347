"""The settings of one client from a Java properties file, which several clients may share.

Owner: no state.
"""

from __future__ import annotations

import logging
import os
from importlib import import_module
from typing import TYPE_CHECKING, Final, Literal

from pykclient.config.properties import read_properties
from pykclient.config.setting import shown
from pykclient.config.unknown_keys import EVERY_CLIENT, clients_with, underscored
from pykclient.errors.base import ConfigError

if TYPE_CHECKING:
    from pykclient.config.client import ClientConfig

FOREIGN_PREFIXES: Final = ("schema.registry.", "basic.auth.", "bearer.auth.")
"""Prefixes of keys for Confluent's serializers, which its console writes to the same file."""

log = logging.getLogger("pykclient.config")


class Properties(dict[str, str]):
    """Settings of a file in its order; the `repr` masks secrets."""

    def __repr__(self) -> str:
        entries = (f"{key!r}: {shown(key, value)}" for key, value in self.items())
        return f"{{{', '.join(entries)}}}"


def from_properties(
    path: str | os.PathLike[str], client: Literal["admin", "consumer", "producer"]
) -> dict[str, str]:
    r"""Return the settings of one client from a Java properties file that several may share.

    Settings that only other clients have, and those of Confluent's Schema Registry, are left out;
    their names are logged at INFO. Names that no client has stay in, so that the client rejects a
    misspelled one: `Consumer(from_properties("client.properties", client="consumer"))`.

    Keys keep their spelling, and values are text; the `repr` masks secrets. Values may name code,
    files and addresses only as far as the process allows ("who may write settings" in
    docs/security.md). This does not limit settings that the program adds or replaces.

    Raises:
        ConfigError: the file cannot be read, a \u escape in it is malformed, or there is no
            such client.
    """
    config = config_class(client)
    properties, left_out = Properties(), []
    for key, value in read_properties(as_path(path)).items():
        if config.setting_of(key) is None and _is_for_others(key, client):
            left_out.append(key)
        else:
            properties[key] = value
    if left_out:
        log.info("%s: not for the %s, left out: %s", path, client, ", ".join(left_out))
    return properties


def config_class(client: str) -> type[ClientConfig]:
    """Return the config class of a client, imported on demand.

    Raises:
        ConfigError: the client is unknown.
    """
    if client not in EVERY_CLIENT:
        raise ConfigError(f"client={client!r} is unknown; give one of {', '.join(EVERY_CLIENT)}.")
    found: type[ClientConfig] = getattr(
        import_module(f"pykclient.{client}.config"), f"{client.title()}Config"
    )
    return found


def as_path(path: str | os.PathLike[str]) -> os.PathLike[str]:
    """Return a path object.

    Raises:
        ConfigError: the value is not a path.
    """
    from pathlib import Path  # not imported where no file is read

    if not isinstance(path, (str, os.PathLike)):
        raise ConfigError(f"path is {shown('', path)}; give the path of a properties file.")
    return Path(path)


def _is_for_others(key: str, client: str) -> bool:
    if key.replace("_", ".").startswith(FOREIGN_PREFIXES):
        return True
    name = underscored(key)
    owners = clients_with(name) or tuple(
        each for each in EVERY_CLIENT if config_class(each).setting_of(key) is not None
    )
    return bool(owners) and client not in owners
