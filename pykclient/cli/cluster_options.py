"""The options of every command that speaks to a cluster.

A properties file may have the settings of all clients: a command takes those of the client that it
uses. Settings of the command line have to be that client's.

Owner: none; it holds no state.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Final, Literal

from pykclient.cli.argument import as_path
from pykclient.config.client_properties import config_class, from_properties
from pykclient.config.given_settings import from_text
from pykclient.errors import ConfigError

if TYPE_CHECKING:
    from pykclient.config.client import ClientConfig

BOOTSTRAP_VARIABLE: Final = "PYKCLIENT_BOOTSTRAP_SERVERS"
BOOTSTRAP_KEY: Final = "bootstrap.servers"
TIMEOUT_S: Final = 10.0
TIMEOUT_KEY: Final = "default.api.timeout.ms"

Client = Literal["admin", "consumer", "producer"]


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how the cluster is found, and how results are printed."""
    parser.add_argument(
        *("-b", "--bootstrap-servers"),
        metavar="HOST:PORT,...",
        help="brokers from which to find the cluster; else a setting says so, or the variable "
        f"{BOOTSTRAP_VARIABLE}",
    )
    parser.add_argument(
        *("-F", "--config-file"),
        type=as_path,
        metavar="FILE",
        help="a Java properties file; settings of other clients in it are passed over",
    )
    parser.add_argument(
        *("-X", "--config"),
        action="append",
        default=[],
        type=key_and_value,
        metavar="KEY=VALUE",
        help="a setting of the client, before those of the file; may be given again",
    )
    parser.add_argument(
        *("-J", "--json"), action="store_true", help="one JSON object a line instead of text"
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="how long brokers may take until the command gives up (default: %(default)g); while "
        "records are read or sent, settings say it",
    )
    parser.add_argument(*("-v", "--verbose"), action="store_true", help="log what the network does")


def client_settings(
    options: argparse.Namespace, client: Client, *, is_bounded: bool = True
) -> dict[str, object]:
    """Return the settings of a client, as the options say, their keys as Kafka spells them.

    Its calls end in the time of ``--timeout``, unless `is_bounded` is false: then a call that goes
    on while brokers are away has the client's own time.

    Raises:
        ConfigError: the file cannot be read, or no broker is named.
    """
    config = config_class(client)
    settings: dict[str, object] = {}
    if is_bounded:
        settings[TIMEOUT_KEY] = round(options.timeout * 1000)
    if os.environ.get(BOOTSTRAP_VARIABLE):
        given = {BOOTSTRAP_KEY: os.environ[BOOTSTRAP_VARIABLE]}
        settings |= from_text(given, f"the variable {BOOTSTRAP_VARIABLE}")
    if options.config_file is not None:
        for key, value in from_properties(options.config_file, client).items():
            settings[_spelled(config, key)] = value
    given = {_spelled(config, key): value for key, value in options.config}
    if options.bootstrap_servers is not None:
        given[BOOTSTRAP_KEY] = options.bootstrap_servers
    settings |= from_text(given, "the command line")
    if BOOTSTRAP_KEY not in settings:
        raise ConfigError(
            f"no broker is named; give -b HOST:PORT, or set the variable {BOOTSTRAP_VARIABLE}"
        )
    return settings


def key_and_value(text: str) -> tuple[str, str]:
    """Read ``KEY=VALUE``. Raises `argparse.ArgumentTypeError`."""
    key, sign, value = text.partition("=")
    if not sign:
        raise argparse.ArgumentTypeError(f"{text!r} is no setting; write it as {text}=VALUE")
    return key.strip(), value


def _spelled(config: type[ClientConfig], key: str) -> str:
    """Spell a key as Kafka does, whatever the user's spelling: of two sources one wins."""
    setting = config.setting_of(key)
    return key if setting is None else setting.key


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return seconds
