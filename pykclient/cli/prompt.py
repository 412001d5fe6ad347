"""Prompt: reads a secret at the terminal without showing it.

Owner: the main thread.
"""

from __future__ import annotations

import warnings
from getpass import GetPassWarning, getpass

from pykclient.errors import ConfigError


def ask(key: str) -> str:
    """Return the value that the user types for a setting. The terminal does not show it.

    Raises:
        ConfigError: there is no terminal, or its input has ended.
    """
    with warnings.catch_warnings():
        # Without a terminal `getpass` would read standard input, which may be records.
        warnings.simplefilter("error", GetPassWarning)
        try:
            return getpass(f"{key}: ")
        except GetPassWarning:
            reason = "there is no terminal to ask for it"
        except EOFError:
            reason = "nothing was typed"
    raise ConfigError(f"{key} has no value: {reason}; set the variable {variable_of(key)}")


def variable_of(key: str) -> str:
    """Return the environment variable that a command reads for a secret setting."""
    return f"PYKCLIENT_{key.replace('.', '_').upper()}"
