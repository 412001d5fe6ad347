"""Policy: limits what settings from text may import, read and contact.

A program may name anything in its settings. Text may be written by others: Spark's options (set by
anyone who may write SQL), properties files, the command line, and values of configuration
providers. Environment variables of the process in which it enters limit it:

* ``PYKCLIENT_ALLOWED_IMPORTS``: packages, modules, or ``package.module:Name``
* ``PYKCLIENT_ALLOWED_CONFIG_PROVIDERS``: classes of configuration providers
* ``PYKCLIENT_ALLOWED_VARIABLES``: environment variables for ``${env:NAME}``, or ``KAFKA_*``
* ``PYKCLIENT_ALLOWED_URLS``: complete addresses of identity servers
* ``PYKCLIENT_ALLOWED_FILES``: files, and folders with everything in them

Each is a list separated by commas, empty by default. The contents of certificates and Kerberos keys
stay in this process, so their files are limited only if ``PYKCLIENT_ALLOWED_FILES`` is set.

Owner: none, it is immutable. A text carries its policy along to other processes.
Source: Java's system properties ``org.apache.kafka.automatic.config.providers`` (CVE-2024-31141),
``org.apache.kafka.sasl.oauthbearer.allowed.urls`` and ``.allowed.files`` (CVE-2025-27817),
``org.apache.kafka.disallowed.login.modules`` (CVE-2023-25194, CVE-2025-27818, CVE-2025-27819).
"""

from __future__ import annotations

import os
from enum import Enum
from typing import Final, NamedTuple

ALLOWED_IMPORTS: Final = "PYKCLIENT_ALLOWED_IMPORTS"
ALLOWED_CONFIG_PROVIDERS: Final = "PYKCLIENT_ALLOWED_CONFIG_PROVIDERS"
ALLOWED_VARIABLES: Final = "PYKCLIENT_ALLOWED_VARIABLES"
ALLOWED_URLS: Final = "PYKCLIENT_ALLOWED_URLS"
ALLOWED_FILES: Final = "PYKCLIENT_ALLOWED_FILES"

OWN_MODULES: Final = ("pykclient.serialization",)
"""Modules of this package that text may always name, like Java's class names."""


class Reach(Enum):
    """A way in which a setting's value reaches beyond the settings, as a verb phrase."""

    FUNCTION = "name the function"
    """Never allowed in text: a program passes the function itself."""
    IMPORT = "import"
    CONFIG_PROVIDER = "use the configuration provider"
    VARIABLE = "read the variable"
    URL = "name the address"
    FILE = "name the file"
    LOCAL_FILE = "name the local file"
    """A file whose contents stay in this process: certificates, and keys that are only used."""


class Policy(NamedTuple):
    """The limits for text. `files` is None if its variable is not set."""

    imports: tuple[str, ...] = ()
    config_providers: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    files: tuple[str, ...] | None = None

    @classmethod
    def of_process(cls) -> Policy:
        """Return the policy in the environment of this process."""
        return cls(
            _words(ALLOWED_IMPORTS),
            _words(ALLOWED_CONFIG_PROVIDERS),
            _words(ALLOWED_VARIABLES),
            _words(ALLOWED_URLS),
            _words(ALLOWED_FILES) if ALLOWED_FILES in os.environ else None,
        )

    def allows(self, reach: Reach, name: str) -> bool:
        """Return whether text may name this."""
        if reach is Reach.IMPORT:
            return self._allows_import(name)
        if reach is Reach.CONFIG_PROVIDER:
            return _last_part(name) in map(_last_part, self.config_providers)
        if reach is Reach.VARIABLE:
            return any(_matches(name, each) for each in self.variables)
        if reach is Reach.URL:
            return name in self.urls or (
                name.startswith("file:") and self._allows_file(_path_of(name), self.files or ())
            )
        if reach is Reach.FILE:
            return self._allows_file(name, self.files or ())
        if reach is Reach.LOCAL_FILE:
            return self.files is None or self._allows_file(name, self.files)
        return False

    def allows_definer(self, name: str, module: str) -> bool:
        """Return whether text may use the object at `name`, which `module` defines.

        An allowed module has imported others: ``package.module:os.system`` is not its own.
        """
        return name in self.imports or self._allows_module(module)

    def _allows_import(self, name: str) -> bool:
        module, _, attributes = name.partition(":")
        if any(part.startswith("__") for part in attributes.split(".")):
            return False
        return name in self.imports or self._allows_module(module)

    def _allows_module(self, module: str) -> bool:
        return any(
            module == each or module.startswith(f"{each}.")
            for each in (*OWN_MODULES, *self.imports)
        )

    @staticmethod
    def _allows_file(name: str, allowed: tuple[str, ...]) -> bool:
        try:
            place = os.path.realpath(name)
            return any(_is_in(place, os.path.realpath(each)) for each in allowed)
        except (OSError, ValueError):  # not a valid path, such as one with a NUL
            return False


def switch(reach: Reach, name: str) -> tuple[str, str]:
    """Return the variable that would allow a refused name, and the word to add to it."""
    if reach is Reach.IMPORT:
        return ALLOWED_IMPORTS, name.partition(":")[0]
    if reach is Reach.CONFIG_PROVIDER:
        return ALLOWED_CONFIG_PROVIDERS, _last_part(name)
    if reach is Reach.VARIABLE:
        return ALLOWED_VARIABLES, name
    if reach is Reach.URL and not name.startswith("file:"):
        return ALLOWED_URLS, name
    return ALLOWED_FILES, _path_of(name) if reach is Reach.URL else name


def _words(variable: str) -> tuple[str, ...]:
    words = os.environ.get(variable, "").split(",")
    return tuple(word.strip() for word in words if word.strip())


def _last_part(name: str) -> str:
    return name.rpartition(".")[2]


def _matches(name: str, pattern: str) -> bool:
    if pattern.endswith("*"):
        return name.startswith(pattern[:-1])
    return name == pattern


def _path_of(url: str) -> str:
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(url).path)


def _is_in(place: str, folder: str) -> bool:
    return place == folder or place.startswith(folder.rstrip(os.sep) + os.sep)
