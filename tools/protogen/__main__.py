"""`python -m tools.protogen [--jar PATH] [--check]`: write the generated files, or compare them."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pykclient.testing.cluster.java import MissingPrerequisiteError
from tools.protogen.apis import APIS, DATA, UNSTABLE_APIS
from tools.protogen.emit_errors import emit_errors
from tools.protogen.emit_messages import emit_module
from tools.protogen.emit_tables import emit_api_keys
from tools.protogen.jar import KAFKA_VERSION, find_jar, read_errors, read_schemas
from tools.protogen.spec import Message, parse_all, snake_case

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROOT = Path(__file__).parents[2]
_MESSAGES = "pykclient/protocol/messages"
_ERRORS = "pykclient/errors/broker.py"

_ERRORS_NOTE = """\
A class is named after its code: ``NOT_LEADER_OR_FOLLOWER`` is `NotLeaderOrFollowerError`. One
differs, since our own error of the same meaning has the plain name; it is a subclass of that too:
``UNSUPPORTED_VERSION`` is `BrokerUnsupportedVersionError`.

"""


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; the result is the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.protogen", description=__doc__)
    parser.add_argument("--jar", type=Path, help=f"kafka-clients-{KAFKA_VERSION}.jar")
    parser.add_argument("--into", type=Path, default=_ROOT, help="the project; this one by default")
    parser.add_argument("--check", action="store_true", help="only compare; 1 if anything differs")
    options = parser.parse_args(arguments)
    jar = options.jar or find_jar()
    sources = generate(jar)
    try:
        sources[_ERRORS] = _errors(jar)
    except MissingPrerequisiteError as error:
        # A Java that runs Kafka is enough to check the rest, which is nearly all of it.
        if not options.check:
            raise
        print(f"not checked: {_ERRORS}: {error}")
    files = {options.into / path: text for path, text in formatted(sources).items()}
    stale = set((options.into / _MESSAGES).glob("*.py")) - files.keys()
    changed = {p for p, text in files.items() if not p.exists() or p.read_text() != text}
    if options.check:
        return _report(changed | stale, options.into)
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path])
        print(f"written: {path.relative_to(options.into)}")
    for path in stale:
        path.unlink()
        print(f"removed: {path.relative_to(options.into)}")
    return 0


def _report(different: set[Path], root: Path) -> int:
    for path in sorted(different):
        print(f"differs: {path.relative_to(root)}")
    if different:
        print("the generated files are not what the tool writes; run: python -m tools.protogen")
    return 1 if different else 0


def generate(jar: Path) -> dict[str, str]:
    """Path below the project -> source, unformatted, for all that comes from the schemas."""
    schemas = parse_all(read_schemas(jar), UNSTABLE_APIS)
    title = "Messages, one module per API."
    files = {f"{_MESSAGES}/__init__.py": _banner("the schemas", title)}
    banner = _banner("the request schemas", "The API keys, and which messages belong to them.")
    files["pykclient/protocol/api_keys.py"] = emit_api_keys(list(schemas.values()), APIS, banner)
    for api in APIS:
        pair = [schemas[f"{api}Response"], schemas[f"{api}Request"]]
        files[f"{_MESSAGES}/{snake_case(api)}.py"] = emit_module(pair, _banner_of(pair))
    for module, names in DATA.items():
        group = [schemas[name] for name in names]
        title = f"Structures that belong to no API: {module.replace('_', ' ')}."
        banner = _banner("the schemas of these names (a coordinator's in the jar beside)", title)
        files[f"{_MESSAGES}/{module}.py"] = emit_module(group, banner)
    return files


def _errors(jar: Path) -> str:
    title = "One class per error code that a broker can respond with."
    return emit_errors(read_errors(jar), _banner("Java's enum Errors", title, _ERRORS_NOTE))


def formatted(sources: Mapping[str, str]) -> dict[str, str]:
    """Format the sources with ruff, as files of the project; all in one run."""
    with TemporaryDirectory() as folder:
        files = {path: Path(folder, path) for path in sources}
        for path, file in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(sources[path])
        config = ("--config", str(_ROOT / "pyproject.toml"))
        command = [sys.executable, "-m", "ruff", "format", "--quiet", "--no-cache", *config, folder]
        subprocess.run(command, check=True)
        return {path: file.read_text() for path, file in files.items()}


def _banner_of(messages: list[Message]) -> str:
    names = " and ".join(f"{message.name}.json" for message in reversed(messages))
    return _banner(names, f"Messages of {messages[0].api}.")


def _banner(source: str, title: str, note: str = "") -> str:
    return (
        f'"""{title}\n\n{note}Generated by tools/protogen from {source} in\n'
        f'kafka-clients-{KAFKA_VERSION}.jar. Do not edit: change the tool and run it.\n"""'
    )


if __name__ == "__main__":
    sys.exit(main())
