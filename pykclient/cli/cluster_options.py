"""Options of every command that connects to a cluster.

A properties file may hold the settings of all clients: a command uses those of its client. Settings
on the command line must be that client's. A secret does not have to be there, where other users of
the machine can see it: it may be typed, or come from an environment variable.

Owner: none; it holds no state.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
from typing import TYPE_CHECKING, Final, Literal

from pykclient.cli.argument import as_path
from pykclient.cli.private_file import is_readable_by_all
from pykclient.cli.prompt import ask, variable_of
from pykclient.config.client_properties import config_class, from_properties
from pykclient.config.given_settings import from_text
from pykclient.config.providers import PROVIDERS, STANDARD_PROVIDERS
from pykclient.config.references import is_reference, references
from pykclient.config.setting import is_secret
from pykclient.config.unknown_keys import is_known, underscored
from pykclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pykclient.config.client import ClientConfig

BOOTSTRAP_VARIABLE: Final = "PYKCLIENT_BOOTSTRAP_SERVERS"
BOOTSTRAP_KEY: Final = "bootstrap.servers"
TIMEOUT_S: Final = 10.0
TIMEOUT_KEY: Final = "default.api.timeout.ms"

COMMAND_LINE: Final = "the command line"

_KEY: Final = re.compile(r"[\w.-]+")

Client = Literal["admin", "consumer", "producer"]

log = logging.getLogger("pykclient.security")


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the cluster and for the format of results."""
    parser.add_argument(
        *("-b", "--bootstrap-servers"),
        metavar="HOST:PORT,...",
        help="brokers to bootstrap from; otherwise taken from a setting, or the variable "
        f"{BOOTSTRAP_VARIABLE}",
    )
    parser.add_argument(
        *("-F", "--config-file"),
        type=_properties_file,
        metavar="FILE",
        help="a Java properties file; settings for other clients are ignored",
    )
    parser.add_argument(
        *("-X", "--config"),
        action="append",
        default=[],
        type=_setting,
        metavar="KEY=VALUE",
        help="a setting of the client, which overrides the file's; may be repeated. KEY alone, "
        "as in -X sasl.password, prompts for the value of a secret",
    )
    parser.add_argument(
        *("-J", "--json"),
        action="store_true",
        help="print one JSON object per line instead of text",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="maximum time for brokers to respond (default: %(default)g); for reading and sending "
        "records, settings limit it",
    )
    parser.add_argument(*("-v", "--verbose"), action="store_true", help="log network activity")


def client_settings(
    options: argparse.Namespace, client: Client, *, is_bounded: bool = True
) -> dict[str, object]:
    """Return the settings of a client from the options, with Kafka's spelling of keys.

    ``--timeout`` limits the client's calls, unless `is_bounded` is false: then a call that
    continues while brokers are away uses the client's own time-outs.

    Raises:
        ConfigError: the file cannot be read, or no broker is given.
    """
    config = config_class(client)
    settings: dict[str, object] = {}
    if is_bounded:
        settings[TIMEOUT_KEY] = round(options.timeout * 1000)
    if os.environ.get(BOOTSTRAP_VARIABLE):
        given = {BOOTSTRAP_KEY: os.environ[BOOTSTRAP_VARIABLE]}
        settings |= from_text(given, f"the variable {BOOTSTRAP_VARIABLE}")
    for setting in config.settings():
        variable = variable_of(setting.key)
        if setting.is_password and variable in os.environ:
            settings |= from_text({setting.key: os.environ[variable]}, f"the variable {variable}")
    if options.config_file is not None:
        properties = from_properties(options.config_file, client)
        _warn_of_readers(options.config_file, properties)
        for key, value in properties.items():
            settings[_spelled(config, key)] = value
    settings |= from_text(_given(options, config), COMMAND_LINE)
    _add_standard_providers(settings)
    if BOOTSTRAP_KEY not in settings:
        raise ConfigError(
            f"no broker is given; use -b HOST:PORT, or set the variable {BOOTSTRAP_VARIABLE}"
        )
    return settings


def _given(options: argparse.Namespace, config: type[ClientConfig]) -> dict[str, str]:
    """Return the settings of the command line; prompt once for secrets without a value."""
    asked: dict[str, str] = vars(options).setdefault("asked", {})
    given: dict[str, str] = {}
    for key, value in options.config:
        setting = config.setting_of(key)
        spelled = key if setting is None else setting.key
        if value is None:
            asked[spelled] = asked[spelled] if spelled in asked else ask(spelled)
            value = asked[spelled]
        elif setting is not None and setting.is_password and not any(references(value)):
            log.warning(
                "%s is on the command line, which other users of this machine may see; give "
                "-X %s alone to be asked for it, or set the variable %s",
                *(spelled, spelled, variable_of(spelled)),
            )
        given[spelled] = value
    if options.bootstrap_servers is not None:
        given[BOOTSTRAP_KEY] = options.bootstrap_servers
    return given


def _warn_of_readers(file: Path, properties: Mapping[str, str]) -> None:
    """Log a warning if all users may read a file with secrets."""
    secrets = [key for key, value in properties.items() if _is_secret_itself(key, value)]
    if secrets and is_readable_by_all(file):
        log.warning(
            "%s holds %s, and all users of this machine may read it; chmod go-r %s",
            *(file, ", ".join(secrets), file),
        )


def _is_secret_itself(key: str, value: str) -> bool:
    return is_secret(key) and bool(value) and not is_reference(value)


def _add_standard_providers(settings: dict[str, object]) -> None:
    """Define the standard providers that references name, if no setting defines any.

    Otherwise a reference would be used as the secret itself. The policy of the text that contains a
    reference limits the values that it may read.
    """
    if any(underscored(key) == PROVIDERS for key in settings):
        return
    texts = [value for value in settings.values() if isinstance(value, str)]
    named = {found.provider for text in texts for found in references(text)}
    names = [name for name in STANDARD_PROVIDERS if name in named]
    if names:
        settings["config.providers"] = ",".join(names)
    for name in names:
        settings[f"config.providers.{name}.class"] = STANDARD_PROVIDERS[name]


def key_and_value(text: str) -> tuple[str, str]:
    """Parse ``KEY=VALUE``. Raises `argparse.ArgumentTypeError`."""
    key, sign, value = text.partition("=")
    if not sign:
        raise argparse.ArgumentTypeError(f"{text!r} is not a setting; write {text}=VALUE")
    return key.strip(), value


def _properties_file(text: str) -> Path:
    """Return a path. Raises `argparse.ArgumentTypeError` for a setting, without showing it."""
    file = as_path(text)
    if "=" in text and not file.exists():
        raise argparse.ArgumentTypeError("there is no such file; give a setting with -X")
    return file


def _setting(text: str) -> tuple[str, str | None]:
    """Parse a setting of a client; the name of a secret may come without a value.

    Raises:
        argparse.ArgumentTypeError: it is malformed. The text shows no possible secret.
    """
    key, sign, value = text.partition("=")
    key = key.strip()
    if _KEY.fullmatch(key) and (sign or is_secret(key)):
        return key, value if sign else None
    name = _KEY.match(key)
    if name is not None and is_known(name[0]):
        raise argparse.ArgumentTypeError(f"write it as {name[0]}=VALUE")
    raise argparse.ArgumentTypeError("a setting must be KEY=VALUE, with the sign = between")


def _spelled(config: type[ClientConfig], key: str) -> str:
    """Return Kafka's spelling of a key, so that equal keys from two sources override each other."""
    setting = config.setting_of(key)
    return key if setting is None else setting.key


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds
