"""Every name, path and command in back-ticks in a document exists.

A document that names what is gone misleads a reader. Blocks of code are left out: those
of README and the pages run as they stand, in `tests/integration` and `tests/pages`. What those
programs define, a page may name.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pykclient.admin.config import AdminConfig
from pykclient.consumer.config import ConsumerConfig
from pykclient.producer.config import ProducerConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
GENERATED = ("docs/configuration.md",)
"""Written from the code, and compared with it by a test of its own."""

FOLDERS = (
    *("pykclient", "spark_connector", "pyspark_pykafka"),
    *("tests", "tools", "benchmarks", "examples"),
)
BASES = (
    ("", "pykclient", "pykclient/testing", "tests", "benchmarks", "docs", "docs/design")
    # Below them a path is looked for as it stands.
)
PATH_LIKE = re.compile(
    r"[\w./*-]+(?:/|\.(?:py|pyx|pxd|md|toml|sh|png|json))(?:::\w+)?|[\w.*-]+(?:/[\w.*-]+)+"
)
STRING = re.compile(r"'[^']*'|\"[^\"]*\"")
SETTING = re.compile(r"\b[A-Z][A-Z_]+=\S+ ")
"""A variable of the environment before a command."""
CHAIN = re.compile(r"(?<!\w)[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FIRST_CELL = re.compile(r"^\| .*? \|")
"""Names of things in other clients, on the pages for their users."""
CYTHON = re.compile(
    r"^\s*(?:cdef|cpdef|def)\s+(?:class\s+)?(?:[\w\[\] *,]+?\s+)?\*?(\w+)\s*[(:]", re.MULTILINE
)
CYTHON_NUMBER = re.compile(r"^\s+([A-Z][A-Z_]+) = ", re.MULTILINE)

FOREIGN = frozenset(
    {
        # What commands write.
        *(".venv", "bench-output/", "demo-output/", "build/", "build/site", "results.json"),
        "accel/compiled/build_failure.txt",
        # Words of Kafka, and of its tools.
        *("read_committed", "read_uncommitted", "ConsumerPerformance", "EndToEndLatency"),
        *("DumpLogSegments", r"\n \t \r \0 \\ \xNN"),
        *("unclean.leader.election.enable", "kafka.transactional.id"),
        "transactional.id.expiration.ms",
        *("group.consumer.migration.policy", "bidirectional", "upgrade"),
        "group.consumer.migration.policy=bidirectional",
        *("errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"),
        *("group.consumer.heartbeat.interval.ms", "consumer.heartbeat.interval.ms"),
        # Other packages, and our extra for developers.
        *("python3", "pytest", "dev", "pa.array", "pa.scalar", "apache/kafka"),
        "jq -c '{value: tojson}'",
        *("table.to_pandas()", "polars.from_arrow(table)"),
        *("queue.SimpleQueue", "call_soon_threadsafe", "forkserver"),
        "await asyncio.wait_for(delivery, 5)",
        *("gunicorn web:application", "--preload", "terminationGracePeriodSeconds"),
        *('CMD ["python", "bill_orders.py"]', "CMD python bill_orders.py"),
        # What stands in other clients, and nowhere here.
        *(
            "fnv1a",
            "rdkafka",
            "kafkaclient",
            "future.add_callback(f)",
            "future.add_errback(g)",
            "checksum",
        ),
        # What is logged.
        "could not connect to kafka:9092 (id 1)",
        *("itertools.batched(consumer, 100)", "executor.map(work, consumer)"),
        # Patterns for names.
        *("on_x", "take_x", "is_", "has_", "area: what"),
    }
)
"""Spans that are defined nowhere in our code and are meant all the same."""


class Span(NamedTuple):
    """The text between two back-ticks, and where it stands."""

    document: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}: `{self.text}`"


def spans_of(document: str, text: str) -> Iterator[Span]:
    is_block = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            is_block = not is_block
        elif not is_block and not line.startswith("    "):
            ours = FIRST_CELL.sub("", line) if "coming-from" in document else line
            for found in re.findall(r"`([^`]+)`", ours):
                yield Span(document, number, found)


class Names:
    """All names that the code defines: functions, members of classes, modules, and strings.

    The strings of tests are left out, since they may be anything.
    """

    def __init__(self) -> None:
        self.defined: set[str] = set(dir(builtins)) | set(keyword.kwlist) | FOREIGN
        self.members: dict[str, set[str]] = {}
        self.bases: dict[str, set[str]] = {}
        self.strings: set[str] = set()
        self.modules: set[str] = set()
        self.files = {path.name for path in ROOT.iterdir()}

    def read(self, path: str, text: str) -> None:
        parts = Path(path).with_suffix("").parts
        self.files.add(Path(path).name)
        for start in range(len(parts)):
            self.modules.add(".".join(parts[start:]).removesuffix(".__init__"))
        self.defined.update(parts)
        if path.endswith(".pyx"):
            self.defined.update(CYTHON.findall(text), CYTHON_NUMBER.findall(text))
        else:
            self._read_tree(ast.parse(text), has_words=not path.startswith("tests/"))

    def read_program(self, text: str) -> None:
        """Read a page's program, which begins with the name of its file, if it has one."""
        self.files.update(re.findall(r"\A# ([\w.]+\.py)\n", text))
        self._read_tree(ast.parse(text), has_words=True)

    def _read_tree(self, tree: ast.Module, *, has_words: bool) -> None:
        for node in ast.walk(tree):
            match node:
                case ast.ClassDef(name=name):
                    self.members.setdefault(name, set()).update(_members(node))
                    self.bases.setdefault(name, set()).update(map(_last_name, node.bases))
                    self.defined |= {name} | self.members[name]
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    self.defined.add(name)
                case ast.arg(arg=name) | ast.keyword(arg=str(name)):
                    self.defined.add(name)
                case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name):
                    self.defined.add(name)
                case ast.alias(name=name):
                    self.defined.update(name.split("."))
                case ast.Constant(value=str(value)) if has_words or value.isupper():
                    self.strings.add(value)

    def has(self, chain: str) -> bool:
        """Tell whether a dotted name leads to something."""
        if chain in self.strings or chain in self.modules or chain in FOREIGN:
            return True
        *owners, _ = parts = chain.split(".")
        if any(part not in self.defined for part in parts):
            return False
        return all(
            owner not in self.members or part in self._members_of(owner)
            for owner, part in zip(owners, parts[1:], strict=True)
        )

    def _members_of(self, name: str) -> set[str]:
        own = self.members.get(name)
        if own is None:
            return set()
        return own.union(*(self._members_of(base) for base in self.bases[name] - {name}))


def _members(node: ast.ClassDef) -> Iterator[str]:
    for inner in ast.walk(node):
        match inner:
            case ast.FunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(attr=name, value=ast.Name(id="self"), ctx=ast.Store()):
                yield name


def _last_name(base: ast.expr) -> str:
    return ast.unparse(base).partition("[")[0].split(".")[-1]


@cache
def names() -> Names:
    found = Names()
    for folder in FOLDERS:
        for suffix in ("py", "pyi", "pyx"):
            for path in (ROOT / folder).rglob(f"*.{suffix}"):
                found.read(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
        found.files.update(path.name for path in (ROOT / folder).rglob("*.*"))
    for config in (AdminConfig, ConsumerConfig, ProducerConfig):
        found.strings.update(setting.key for setting in config.settings())
    for page in (ROOT / "docs").glob("*.md"):
        for text in PROGRAM.findall(page.read_text(encoding="utf-8")):
            found.read_program(text)
    return found


@cache
def make_targets() -> frozenset[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^([\w-]+):", text, re.MULTILINE))


def exists(span: Span) -> bool:
    """Tell whether a command, path or expression means something in this project."""
    text = SETTING.sub("", span.text).removeprefix(".venv/bin/")
    command, _, rest = text.partition(" ")
    match command if rest else "":
        case "make":
            return rest.partition(" ")[0] in make_targets()
        case "python":
            words = [word for word in rest.split() if not word.startswith("-")]
            return _is_path(words[0]) or words[0] in names().modules | FOREIGN
        case "pykclient":
            return all(word in names().strings for word in rest.split() if word.isalpha())
        case "pip" | "git" | "apt-get":
            return True
    if PATH_LIKE.fullmatch(command):
        return command in FOREIGN or _is_path(command)
    if text in names().strings or text in FOREIGN:
        return True
    return all(names().has(chain) for chain in CHAIN.findall(STRING.sub("", text)))


def _is_path(text: str) -> bool:
    path, _, test = text.partition("::")
    if "/" not in path and not test and "*" not in path:
        return path in names().files
    found = [each for base in BASES for each in (ROOT / base).glob(path.rstrip("/") or ".")]
    return any(not test or f"def {test}(" in each.read_text(encoding="utf-8") for each in found)


def documents() -> list[str]:
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md"]
    return sorted({path.relative_to(ROOT).as_posix() for path in found} - {*GENERATED})


@pytest.mark.parametrize("document", documents())
def test_what_a_document_names_exists(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    assert [str(span) for span in spans_of(document, text) if not exists(span)] == []


@pytest.mark.parametrize("document", documents())
def test_what_a_document_links_to_exists(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```|`[^`]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", prose)
    folder = (ROOT / document).parent
    assert [link for link in links if not (folder / link).exists()] == []
