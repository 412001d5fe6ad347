"""Writing to a checkpoint: a copy of it first, then each file in one step.

A rename replaces a file. A new file is created only if it does not exist yet; if a query is
running, either the query fails or this does. Hadoop's checksums of a file are removed before the
file changes: Hadoop reads a file without them, but refuses one with checksums of other contents.

Owner: the caller. One process writes to a checkpoint at a time. Source: Hadoop's class
``ChecksumFileSystem``.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pykclient.errors import UsageError
from spark_connector.checkpoint.checkpoint import OFFSETS, Checkpoint, checksum_file

if TYPE_CHECKING:
    from spark_connector.checkpoint.mending import Change

BACKUP_SUFFIX: Final = ".backup-"
_PARTIAL_SUFFIX: Final = ".partial"


def apply(change: Change, checkpoint: Checkpoint, stamp: str) -> Path:
    """Copy a checkpoint to a directory beside it, change the checkpoint, and return the copy.

    `stamp` is the time as text, for the name of the copy.

    Raises:
        UsageError: the checkpoint has changed since it was read, or changes meanwhile.
        OSError: something cannot be copied or written. Without a whole copy nothing is changed.
    """
    folder = checkpoint.folder
    whole = folder.resolve()
    backup = _copied(whole, whole.with_name(f"{whole.name}{BACKUP_SUFFIX}{stamp}"))
    if Checkpoint.read(folder).texts != checkpoint.texts:
        raise UsageError(f"{folder} has changed meanwhile: stop the query that uses it")
    like = (folder / min(checkpoint.texts, key=lambda name: not name.startswith(OFFSETS))).stat()
    for name in change.removals:
        _remove(folder / name)
    for name, text in change.writes.items():
        _write(folder / name, text.encode(), like, is_new=name not in checkpoint.texts)
    return backup


def _copied(folder: Path, backup: Path) -> Path:
    partial = backup.with_name(backup.name + _PARTIAL_SUFFIX)
    if backup.exists():
        raise UsageError(f"{backup} is there already; try again")
    try:
        shutil.copytree(folder, partial)
        partial.rename(backup)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return backup


def _remove(file: Path) -> None:
    checksum_file(file).unlink(missing_ok=True)
    file.unlink()
    _sync_folder(file.parent)


def _write(file: Path, data: bytes, like: os.stat_result, *, is_new: bool) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", suffix=".tmp", dir=file.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        _give_away(temporary, like)
        checksum_file(file).unlink(missing_ok=True)
        if is_new:
            try:
                _make(temporary, file)
            except FileExistsError as error:
                raise UsageError(
                    f"{file} was made meanwhile: a query uses this checkpoint; stop it, and put "
                    f"the copy back if it does not start"
                ) from error
        else:
            temporary.replace(file)
        _sync_folder(file.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _make(temporary: Path, file: Path) -> None:
    """Rename a file to this name. Raises: `FileExistsError`."""
    try:
        os.link(temporary, file)
    except FileExistsError:
        raise
    except OSError as error:  # a file system without hard links
        if file.exists():
            raise FileExistsError(str(file)) from error
        temporary.rename(file)


def _give_away(file: Path, like: os.stat_result) -> None:
    """Give a file the mode and, if permitted, the owner of Spark's own files."""
    file.chmod(stat.S_IMODE(like.st_mode))
    if hasattr(os, "chown"):
        with suppress(PermissionError):
            os.chown(file, like.st_uid, like.st_gid)


def _sync_folder(folder: Path) -> None:
    if os.name != "nt":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
