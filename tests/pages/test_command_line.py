"""The page on the command line: its commands print what stands there, and no option is left out.

A command is what follows ``$`` in a console block, and what it prints the lines up to the next one;
``"..."`` stands for any text.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pykclient.cli import command_parser
from tests.cli.test_broker import broker
from tests.pages.programs import DOCS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGE = (DOCS / "command-line.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TIMEOUT_S = 60.0
LISTED = ("broker", "topics", "produce", "consume", "scan")
"""The commands whose options are all on the page; of the others it names the parts."""


def commands() -> Iterator[tuple[str, str]]:
    """Each command of the page, and what it prints."""
    for block in BLOCK.findall(PAGE):
        for each in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = each.partition("\n")
            yield command, output


def test_the_commands_print_what_the_page_has(tmp_path: Path) -> None:
    program = tmp_path / "pykclient"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m pykclient "$@"\n')
    program.chmod(0o755)
    with broker() as (_, servers):
        environ = {
            **os.environ,
            "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
            "PYKCLIENT_BOOTSTRAP_SERVERS": servers,
            "LC_ALL": "C",
        }
        for command, expected in commands():
            ended = subprocess.run(
                ["/bin/sh", "-c", command],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT_S,
                text=True,
                check=False,
            )
            pattern = re.escape(expected).replace(re.escape('"..."'), '"[^"]+"')
            assert re.fullmatch(pattern, ended.stdout), f"{command}\n{ended.stdout}"


def test_every_option_is_on_the_page() -> None:
    absent = [
        f"{' '.join(words)} {action.option_strings[-1]}"
        for words, parser in parsers(command_parser(), ())
        if words[:1] and words[0] in LISTED
        for action in parser._actions
        if action.option_strings and action.option_strings[-1] != "--help"
        if not re.search(rf"{action.option_strings[-1]}\b", PAGE)
    ]
    assert absent == []


def test_the_help_of_each_command_can_be_printed_and_has_no_escapes() -> None:
    helps = [parser.format_help() for _, parser in parsers(command_parser(), ())]
    assert [text for text in helps if "%%" in text or "%(" in text] == []


def test_what_takes_the_place_of_other_tools_is_a_command() -> None:
    (table,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    ours = re.findall(r"pykclient (.+)", table)
    assert len(ours) == len(table.splitlines()) - 1
    for command in ours:
        command_parser().parse_args(command.split())  # it would end the test with status 2


def parsers(
    parser: argparse.ArgumentParser, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Yield the parser of each command and part, by its words."""
    yield words, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, part in action.choices.items():
                yield from parsers(part, (*words, name))


def test_each_command_of_a_cluster_has_the_same_options_for_it() -> None:
    lacking = [
        (" ".join(words), option)
        for words, parser in parsers(command_parser(), ())
        if parser._subparsers is None and words[0] not in ("broker", "log")
        for option in ("-b", "-F", "-X", "-J", "--timeout")
        if option not in parser._option_string_actions
    ]
    assert lacking == []


def test_an_option_means_one_thing_in_every_command() -> None:
    spellings: dict[str, set[tuple[str, ...]]] = {}
    for _, parser in parsers(command_parser(), ()):
        for action in parser._actions:
            for option in action.option_strings:
                spellings.setdefault(option, set()).add(tuple(sorted(action.option_strings)))
    assert {option: forms for option, forms in spellings.items() if len(forms) > 1} == {}


@pytest.mark.parametrize("words", ["broker --partition 3", "topics create t --partition 3"])
def test_the_beginning_of_an_option_is_not_taken_for_it(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--partition`` is a partition, ``--partitions`` how many there are."""
    with pytest.raises(SystemExit):
        command_parser().parse_args(words.split())
    assert "unrecognized arguments: --partition" in capsys.readouterr().err


def test_every_command_is_on_the_page() -> None:
    names = {words[0] for words, _ in parsers(command_parser(), ()) if words}
    assert {name for name in names if f"pykclient {name}" not in PAGE} == set()
