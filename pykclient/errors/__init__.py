"""All errors that this library raises: the tree in `base`, and one class per broker error code.

`LogTruncationError` says more than the broker's code that it stands for.

`error_for_code` turns a broker's error code into the error that stands for it.
"""

from __future__ import annotations

from pykclient.errors import base as base
from pykclient.errors import broker as broker
from pykclient.errors import truncation as truncation
from pykclient.errors.base import *  # noqa: F403 - all of it, as its __all__ says
from pykclient.errors.broker import *  # noqa: F403
from pykclient.errors.truncation import *  # noqa: F403

__all__: list[str] = []
__all__ += base.__all__
__all__ += broker.__all__
__all__ += truncation.__all__
