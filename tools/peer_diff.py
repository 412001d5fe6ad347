"""`python -m tools.peer_diff`: how the installed clients of others differ from `tools/peers.toml`.

Upgrade confluent-kafka, kafka-python and aiokafka with pip first. It prints methods and settings
that are new or gone; the exit status is 1 if there are any. Once they are in `tools/peers.toml`,
`make docs` says what each setting is here.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import tomllib
from importlib import import_module
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PEERS: Final = Path(__file__).with_name("peers.toml")
CLASSES: Final = {
    "confluent-kafka": {
        "Producer": "confluent_kafka",
        "Consumer": "confluent_kafka",
        "AdminClient": "confluent_kafka.admin",
    },
    "kafka-python": dict.fromkeys(("KafkaProducer", "KafkaConsumer", "KafkaAdminClient"), "kafka"),
    "aiokafka": {
        "AIOKafkaProducer": "aiokafka",
        "AIOKafkaConsumer": "aiokafka",
        "AIOKafkaAdminClient": "aiokafka.admin",
    },
}
PACKAGES: Final = " ".join(CLASSES)
OF_THE_WRAPPER: Final = frozenset({"logger", "oauth_cb", "on_commit", "on_delivery"})
"""Settings that confluent-kafka has beside librdkafka's."""
COLUMNS: Final = {"*": "both", "P": "producer", "C": "consumer"}


def differences(known: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line a difference between what `peers.toml` has and what is installed."""
    for peer, classes in CLASSES.items():
        for name, module in classes.items():
            present = _methods(getattr(import_module(module), name))
            yield from _compared(f"{peer}: {name}.", set(known[peer][name]), present)
    for client, present in _librdkafka_settings().items():
        here = known["confluent-kafka"][client].keys() - OF_THE_WRAPPER
        yield from _compared(f"librdkafka, {client}: ", here, present)
    of_python = known["kafka-python"]
    for client in ("producer", "consumer"):
        there = getattr(import_module("kafka"), f"Kafka{client.capitalize()}").DEFAULT_CONFIG
        here = of_python["both"].keys() | of_python[client].keys()
        yield from _compared(f"kafka-python, {client}: ", here, set(there))


def _methods(kind: type) -> set[str]:
    return {
        name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))
    }


def _compared(place: str, known: set[str], present: set[str]) -> Iterator[str]:
    yield from (f"{place}{name}: new" for name in sorted(present - known))
    yield from (f"{place}{name}: gone" for name in sorted(known - present))


def _librdkafka_settings() -> dict[str, set[str]]:
    """Return the names that librdkafka itself prints, by whose they are."""
    files = distribution("confluent-kafka").files or []
    path = next(file.locate() for file in files if file.name.startswith("librdkafka-"))
    librdkafka, libc = ctypes.CDLL(str(path)), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    found: dict[str, set[str]] = {client: set() for client in COLUMNS.values()}
    with TemporaryDirectory() as folder:
        table = Path(folder) / "settings"
        stream = ctypes.c_void_p(libc.fopen(str(table).encode(), b"w"))
        librdkafka.rd_kafka_conf_properties_show(stream)
        libc.fclose(stream)
        for line in table.read_text("utf-8").splitlines():
            name, _, rest = line.partition("|")
            client = COLUMNS.get(rest.partition("|")[0].strip())
            if client is not None:
                found[client].add(name.strip())
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print the differences; return 1 if there are any, else 0. Exit with 2 without a client."""
    parser = argparse.ArgumentParser(prog="python -m tools.peer_diff", description=__doc__)
    parser.parse_args(arguments)
    for module in sorted({module for classes in CLASSES.values() for module in classes.values()}):
        if find_spec(module.partition(".")[0]) is None:
            parser.error(f"the package with {module} is not installed; pip install {PACKAGES}")
    found = list(differences(tomllib.loads(PEERS.read_text("utf-8"))))
    print("\n".join(found) or "no differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
