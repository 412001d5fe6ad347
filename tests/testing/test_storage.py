"""The copies of a formatted folder: same cluster, another server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pykclient.testing.cluster.local import copy_storage
from pykclient.testing.cluster.processes import BrokerFailedError

if TYPE_CHECKING:
    from pathlib import Path

META = "#\n#Sat Nov 21 09:57:38 UTC 2026\nnode.id=100\ndirectory.id=oZ\nversion=1\ncluster.id=AA\n"


def formatted(folder: Path, meta: str) -> Path:
    folder.mkdir()
    (folder / "meta.properties").write_text(meta)
    (folder / "bootstrap.checkpoint").write_bytes(b"\x00features")
    return folder


def test_a_copy_differs_in_the_ids_of_server_and_folder_only(tmp_path: Path) -> None:
    original = formatted(tmp_path / "100", META)
    copies = [tmp_path / "1", tmp_path / "2"]
    for node_id, copy in enumerate(copies, 1):
        copy_storage(original, copy, node_id)
    metas = [
        dict(line.split("=") for line in (copy / "meta.properties").read_text().splitlines()[2:])
        for copy in copies
    ]
    assert [meta["node.id"] for meta in metas] == ["1", "2"]
    assert len({meta["directory.id"] for meta in metas} | {"oZ"}) == len(metas) + 1
    assert {(meta["version"], meta["cluster.id"]) for meta in metas} == {("1", "AA")}
    assert all((copy / "bootstrap.checkpoint").read_bytes() == b"\x00features" for copy in copies)


def test_a_folder_of_another_form_is_an_error(tmp_path: Path) -> None:
    original = formatted(tmp_path / "100", META.replace("directory.id", "disk.id"))
    with pytest.raises(BrokerFailedError, match=r"0 settings directory\.id"):
        copy_storage(original, tmp_path / "1", 1)
