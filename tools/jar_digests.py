"""`python -m tools.jar_digests`: write the digests of the jars that are cached on this machine.

For whoever adds a version: fetch it by Maven and by Ivy, which have the same sets, compare the
digests with those that other machines have, and commit the files. A jar that a file has already
keeps its line, so that a changed one shows as an error.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path

from pykclient.testing.cluster.jars import KAFKA_VERSIONS, cache_folder
from tests.spark.official_connector import VERSIONS

KAFKA = Path("pykclient/testing/cluster/digests")
SPARK = Path("tests/spark")


def main() -> int:
    """Write each file again; 1 where a jar is another one than before."""
    status = 0
    targets = {f"kafka-{version}": KAFKA for version in KAFKA_VERSIONS}
    targets |= {f"spark-sql-kafka-{version}": SPARK for version in VERSIONS}
    for name, folder in targets.items():
        file = folder / f"{name}.sha256"
        known = read(file)
        for jar in sorted((cache_folder() / name).glob("*.jar")):
            digest = sha256(jar.read_bytes()).hexdigest()
            if known.setdefault(jar.name, digest) != digest:
                sys.stderr.write(f"{jar} is another file than the one in {file}\n")
                status = 1
        file.write_text("".join(f"{known[jar]}  {jar}\n" for jar in sorted(known)), "ascii")
    return status


def read(file: Path) -> dict[str, str]:
    """Return the digests in a file, by the name of the jar."""
    lines = file.read_text("ascii").splitlines() if file.exists() else []
    return {name: digest for digest, name in map(str.split, lines)}


if __name__ == "__main__":
    sys.exit(main())
