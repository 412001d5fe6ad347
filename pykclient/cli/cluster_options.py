"""The options of every command that speaks to a cluster.

Owner: none; it holds no state.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pykclient.config.properties import from_properties
from pykclient.errors import ConfigError

if TYPE_CHECKING:
    import argparse


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how the cluster is found, and how results are printed."""
    parser.add_argument(
        *("-b", "--bootstrap-servers"),
        metavar="HOST:PORT,...",
        help="brokers to learn the cluster from; needed unless a setting says so",
    )
    parser.add_argument(
        *("-F", "--config-file"), type=Path, metavar="FILE", help="a Java properties file"
    )
    parser.add_argument(
        *("-X", "--config"),
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the client, before those of the file; may be given again",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")


def client_settings(options: argparse.Namespace) -> dict[str, object]:
    """Return the settings of a client, as the options say.

    Raises:
        ConfigError: the file cannot be read, or a setting has no value.
    """
    settings: dict[str, object] = {}
    if options.config_file is not None:
        settings.update(from_properties(options.config_file))
    for pair in options.config:
        key, sign, value = pair.partition("=")
        if not sign:
            raise ConfigError(f"{pair!r} is no setting; write it as {pair}=VALUE")
        settings[key.strip()] = value
    if options.bootstrap_servers is not None:
        settings["bootstrap.servers"] = options.bootstrap_servers
    return settings
