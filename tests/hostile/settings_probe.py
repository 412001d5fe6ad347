"""A process that reads settings from text, and reports all that they make it do.

An audit hook of the interpreter sees each import, each file that is opened, each address that is
looked up or connected to, and each command. Text makes it do what the policy of this process
allows, whatever the text says; the same settings from a program show that the hook sees the rest.

Run as ``python -m tests.hostile.settings_probe SEED COUNT FOLDER``; it prints JSON: for each phase
what was seen, and how many settings were accepted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pykclient import Admin, Consumer, Producer, from_properties
from pykclient.cli.cluster_options import add_cluster_options, client_settings
from pykclient.cli.prompt import variable_of
from pykclient.config.client_properties import config_class
from pykclient.errors import KafkaError
from pykclient.network.sasl.login import token_source
from spark_connector.client_settings import ClientSettings
from spark_connector.options import of_spark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pykclient.config.client import ClientConfig
    from pykclient.config.setting import Setting

CLIENTS: Final = {"admin": Admin, "consumer": Consumer, "producer": Producer}
HOST: Final = "127.0.0.1"
BROKER: Final = f"{HOST}:9"

SWITCHES: Final = {
    "PYKCLIENT_ALLOWED_IMPORTS": "inside_canary",
    "PYKCLIENT_ALLOWED_CONFIG_PROVIDERS": (
        "EnvVarConfigProvider,FileConfigProvider,DirectoryConfigProvider"
    ),
    "PYKCLIENT_ALLOWED_VARIABLES": "ALLOWED_*",
    "PYKCLIENT_ALLOWED_URLS": "http://127.0.0.2:9/token",
    "PYKCLIENT_ALLOWED_FILES": "{folder}/inside_canary",
}

PROVIDERS: Final = "org.apache.kafka.common.config.provider."
PACKAGE: Final = "org.apache.kafka.common.security."
PLAIN: Final = f"{PACKAGE}plain.PlainLoginModule"
OAUTH: Final = f"{PACKAGE}oauthbearer.OAuthBearerLoginModule"
KERBEROS: Final = "com.sun.security.auth.module.Krb5LoginModule"

COMMANDS: Final = ("os.", "subprocess.", "pty.", "ctypes.dlopen", "shutil.", "tempfile.")
"""Beginnings of events that nothing here may cause."""
HARMLESS: Final = ("os.listdir", "os.scandir", "os.putenv", "os.unsetenv", "tempfile.mkstemp")


class Watch:
    """An audit hook that records events while it is on. Python cannot remove such hooks."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.realpath(folder)
        self.is_on = False
        self.seen: set[str] = set()
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.is_on:
            return
        if event == "exec":
            # Of a module; the event "import" is not of those that are imported by name.
            self._note("import", Path(arguments[0].co_filename).stem)
        elif event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)):
            place = os.path.realpath(os.fsdecode(arguments[0]))
            self._note("open", place.replace(self._folder, "."))
        elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
            self._note("contact", str(arguments[0]))
        elif event in ("socket.connect", "socket.sendto"):
            self._note("contact", str(arguments[1][0]))
        elif event.startswith(COMMANDS) and event not in HARMLESS:
            self.seen.add(f"command {event}")

    def _note(self, kind: str, name: str) -> None:
        """Record an import or a file that settings name; others are the interpreter's own."""
        is_named = name != HOST if kind == "contact" else "canary" in name or name == "this"
        is_code = kind == "open" and name.endswith((".py", ".pyc"))
        if is_named and not is_code:
            self.seen.add(f"{kind} {name}")


def reach_of(setting: Setting[Any]) -> str:
    """Return the target of a setting's kind: code, a file or a URL, "any" for free text.

    The empty text stands for a setting that names nothing.
    """
    named = {reach.name for text in ("a:b", ("a:b",)) for reach, _ in setting.kind.named(text)}
    if named:
        is_file = any(name.endswith("FILE") for name in named)
        return "URL" if "URL" in named else "FILE" if is_file else "IMPORT"
    is_free = setting.name == "sasl_jaas_config" or setting.kind.annotation.startswith("str")
    return "any" if is_free else ""


@cache
def reaching(client: str) -> list[Setting[Any]]:
    """Return the settings of a client that may name something."""
    return [each for each in config_class(client).settings() if reach_of(each)]


class Settings:
    """Random settings, most of which name something."""

    def __init__(self, folder: Path, random: random.Random) -> None:
        self._random = random
        outside, inside = f"{folder}/outside_canary", f"{folder}/inside_canary"
        self._files = [
            *(f"{outside}/file.pem", f"{inside}/../outside_canary/file.pem", f"{inside}/link.pem"),
            *(f"{inside}/file.pem", f"{outside}", f"{inside}/./token"),
        ]
        self._names = [
            *("outside_canary:made", "outside_canary:Made", "inside_canary:made"),
            *("inside_canary:Made", "inside_canary:os.system", "inside_canary:system"),
            *("os:system", "subprocess:Popen", "pykclient.serialization:JsonSerializer"),
            *("pykclient.config.setting:os.system", "pykclient.testing:FakeKafka", "round_robin"),
            *("pykclient.serialization:JsonDeserializer", "builtins:eval", "this:s", "range"),
        ]
        self._urls = [
            *("http://127.0.0.4:9/latest", "https://127.0.0.5:9/token"),
            *("http://127.0.0.2:9/token", "HTTP://127.0.0.3:9/token"),
            *(f"file://{each}" for each in self._files),
            *(f"file:{each}" for each in self._files[:2]),
        ]
        self._words = [*self._files[:2], *self._names[:2], *self._urls[:2]]
        self._keys = [
            f"{outside}:file.pem",
            f"{inside}:../outside_canary/file.pem",
            f"{inside}:{outside}/file.pem",
            f"{inside}:link.pem",
            f"{inside}/x.properties:key",
            f"{outside}/x.properties:key",
            f"{inside}/../outside_canary/x.properties:key",
            "CANARY_VARIABLE",
            "ALLOWED_VARIABLE",
        ]

    def of(self, client: str) -> dict[str, str]:
        """Return settings of a client: often those of a login that is whole, and others at random.

        Values are often references, to what providers have that are defined by the settings.
        """
        random = self._random
        found = {"bootstrap.servers": BROKER, **random.choice([{}, *self._logins()])}
        for setting in random.sample(reaching(client), random.randrange(0, 3)):
            spelling = random.choice([setting.key, setting.name, *setting.aliases])
            found[spelling] = random.choice(self._values_of(setting))
        if random.random() < 0.3:
            kind = random.choice(["EnvVar", "File", "Directory"])
            found["config.providers"] = "p"
            found["config.providers.p.class"] = f"{PROVIDERS}{kind}ConfigProvider"
            if random.random() < 0.3:
                found["config.providers.p.param.allowed.paths"] = "/"
            key = random.choice([*found, "client.id", "group.id", "sasl.username"])
            if not key.startswith("config.providers"):
                found[key] = f"{random.choice(['', 'a'])}${{p:{random.choice(self._keys)}}}"
        return found

    def _values_of(self, setting: Setting[Any]) -> list[str]:
        """Return the targets that a setting may name."""
        if setting.name == "sasl_jaas_config":
            return list(self._login_texts())
        named = {"FILE": self._files, "URL": self._urls, "IMPORT": self._names}
        return named.get(reach_of(setting), self._words)

    def _login_texts(self) -> Iterator[str]:
        file = self._random.choice(self._files)
        yield f'{KERBEROS} required useKeyTab=true keyTab="{file}" principal="a@B";'
        yield f'{KERBEROS} required ticketCache="FILE:{file}";'
        yield f'{OAUTH} required clientId="a" clientSecret="b" ssl.truststore.location="{file}";'
        url = self._random.choice(self._urls)
        yield f'{OAUTH} required oauth.token.endpoint.uri="{url}" oauth.client.id="a";'
        for kind in ("access.token", "refresh.token", "client.assertion"):
            endpoint = f'oauth.token.endpoint.uri="{url}" oauth.client.id="a"'
            yield f'{OAUTH} required {endpoint} oauth.{kind}.location="{file}";'
        yield f'{PLAIN} required username="a" password="b" serviceName="{file}";'

    def _logins(self) -> Iterator[dict[str, str]]:
        oauth = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
        yield {"security.protocol": "SSL"}
        command = {"sasl.oauthbearer.config": "exit 3"}
        yield {**oauth, **command, "oauth_cb": self._random.choice(self._names)}
        yield {**oauth, "sasl_oauth_token_provider": self._random.choice(self._names)}
        url = {"sasl.oauthbearer.token.endpoint.url": self._random.choice(self._urls)}
        client = {"sasl.oauthbearer.client.id": "a", "sasl.oauthbearer.client.secret": "b"}
        yield {**oauth, **url, **client}
        text = self._random.choice([each for each in self._login_texts() if OAUTH in each])
        yield {**oauth, **self._random.choice([{}, url]), "sasl.jaas.config": text}
        imds = {"sasl.oauthbearer.metadata.authentication.type": "azure_imds"}
        # Of a program it would be contacted, which a test must not do.
        yield {**oauth, **imds, **url, "sasl.oauthbearer.config": "query=a=1"}
        yield {
            **oauth,
            **url,
            "sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "sasl.oauthbearer.assertion.file": self._random.choice(self._files),
        }
        yield {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.jaas.config": self._random.choice([*self._login_texts()]),
        }


def by_program(settings: dict[str, str], client: Any, folder: Path) -> dict[str, Any]:
    return dict(settings)


def by_file(settings: dict[str, str], client: Any, folder: Path) -> dict[str, Any]:
    place = folder / "client.properties"
    place.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return from_properties(place, client)


def by_command_line(settings: dict[str, str], client: Any, folder: Path) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    add_cluster_options(parser)
    words, variables = [], {}
    for key, value in settings.items():
        setting = config_class(client).setting_of(key)
        if setting is not None and setting.is_password and len(settings) % 2:
            variables[variable_of(setting.key)] = value
        else:
            words += ["-X", f"{key}={value}"]
    os.environ.update(variables)
    try:
        return client_settings(parser.parse_args(words), client, is_bounded=False)
    finally:
        for variable in variables:
            del os.environ[variable]


def by_spark(settings: dict[str, str], client: Any, folder: Path) -> dict[str, Any]:
    return ClientSettings(of_spark(settings)).of(config_class(client))


TEXT: Final[dict[str, Callable[..., dict[str, Any]]]] = {
    "file": by_file,
    "command line": by_command_line,
    "Spark": by_spark,
}


def use(client: str, settings: dict[str, Any], watch: Watch) -> None:
    """Make a client, and have it get its token."""
    config: ClientConfig = config_class(client).from_settings(settings)
    if "secret of a variable" in str(vars(config)):
        watch.seen.add("variable CANARY_VARIABLE")
    kind: Any = CLIENTS[client]
    with kind(settings):
        if config.is_authenticated and config.sasl_mechanism == "OAUTHBEARER":
            with suppress(Exception):
                token_source(config).fetch()


def run(
    watch: Watch, enter: Callable[..., dict[str, Any]], chance: random.Random, folder: Path
) -> bool:
    """Try settings of one client; return whether they were accepted."""
    client = chance.choice([*CLIENTS])
    settings = Settings(folder, chance).of(client)
    with suppress(KafkaError):
        given = enter(settings, client, folder)
        watch.is_on = True
        use(client, given, watch)
        return True
    return False


def main(seed: str, count: str, place: str) -> None:
    folder = Path(place)
    sys.path.insert(0, place)
    os.environ["CANARY_VARIABLE"] = "secret of a variable"
    os.environ["ALLOWED_VARIABLE"] = "allowed"
    # What is imported at the first use is no doing of settings.
    for client, kind in CLIENTS.items():
        made: Any = kind
        with made(by_spark({"bootstrap.servers": BROKER}, client, folder)):
            pass
    watch = Watch(folder)
    report = {}
    for phase in ("closed", "open", "program"):
        for switch, value in SWITCHES.items():
            os.environ.pop(switch, None)
            if phase == "open":
                os.environ[switch] = value.format(folder=folder)
        chance = random.Random(int(seed))
        watch.seen = set()
        accepted = 0
        for number in range(int(count)):
            origin = [*TEXT][number % len(TEXT)]
            enter = by_program if phase == "program" else TEXT[origin]
            try:
                accepted += run(watch, enter, chance, folder)
            finally:
                watch.is_on = False
            sys.modules.pop("inside_canary", None)
        report[phase] = {"accepted": accepted, "seen": sorted(watch.seen)}
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
