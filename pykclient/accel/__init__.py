"""The per-record core: chooses the compiled or the pure implementation, once, at import.

`implementation` names the choice, and `implementation_note` says why it is not the compiled one;
each client logs the note (INFO). The environment variable ``PYKCLIENT_ACCEL`` forces a choice:
``pure`` or ``compiled``.

Owner: no state after import.
"""

from __future__ import annotations

import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pykclient.errors.base import ConfigError

CHOICES: Final = ("pure", "compiled")
CURE: Final = (
    "install a C compiler, and pykclient from its source (a checkout or sdist) without pip's cache"
)


def choose(wanted: str | None) -> tuple[str, str | None]:
    """Return the implementation to use, and why it is not the compiled one (None if it is).

    It is `wanted`, or the fastest available one if `wanted` is None or empty.

    Raises:
        ConfigError: the implementation is unknown, or not built.
    """
    if wanted and wanted not in CHOICES:
        raise ConfigError(f"PYKCLIENT_ACCEL={wanted}: the choices are pure and compiled")
    if wanted == "pure":
        return "pure", "PYKCLIENT_ACCEL=pure selects the pure core"
    flaw = flaw_of_compiled()
    if flaw is None:
        return "compiled", None
    if wanted:
        raise ConfigError(f"PYKCLIENT_ACCEL=compiled: {flaw}; {CURE}")
    return "pure", flaw


def flaw_of_compiled() -> str | None:
    """Return why the compiled core cannot be used, or None if it can."""
    folder = Path(__file__).with_name("compiled")
    if not any((folder / f"send{suffix}").exists() for suffix in EXTENSION_SUFFIXES):
        failure = folder / "build_failure.txt"  # setup.py writes it
        if failure.exists():
            reason = failure.read_text(encoding="utf-8").strip()
            return f"the compiled core was not built ({reason})"
        return "this build has no compiled core"
    try:
        from pykclient.accel import compiled  # noqa: F401  # whether it loads is the question
    except (ImportError, AttributeError) as error:  # an older build may lack a name
        return f"the compiled core does not load ({error})"
    return None


implementation, implementation_note = choose(os.environ.get("PYKCLIENT_ACCEL"))

if TYPE_CHECKING or implementation == "pure":
    # Both have the same types, so that the types do not show which one does the work.
    from pykclient.accel import pure as chosen
    from pykclient.accel.pure import *  # noqa: F403
else:
    from pykclient.accel import compiled as chosen
    from pykclient.accel.compiled import *  # noqa: F403

__all__ = [*chosen.__all__, "implementation", "implementation_note"]
