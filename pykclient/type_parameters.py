"""The type parameters of clients, records and settings: K for keys, V for values.

They exclude null: a record's key is ``K | None``, since deserializers are never called with null.
Without a serializer or deserializer that defines them, they are bytes (PEP 696: type checkers apply
such defaults; they are omitted at run time, since Python has them only from 3.13 on).

Owner: none; types only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import TypeVar

    K = TypeVar("K", default=Any)
    V = TypeVar("V", default=Any)
    K_co = TypeVar("K_co", covariant=True, default=bytes)
    V_co = TypeVar("V_co", covariant=True, default=bytes)
    K_contra = TypeVar("K_contra", contravariant=True, default=bytes | bytearray | memoryview)
    V_contra = TypeVar("V_contra", contravariant=True, default=bytes | bytearray | memoryview)
else:
    from typing import TypeVar

    K, V = TypeVar("K"), TypeVar("V")
    K_co, V_co = TypeVar("K_co", covariant=True), TypeVar("V_co", covariant=True)
    K_contra = TypeVar("K_contra", contravariant=True)
    V_contra = TypeVar("V_contra", contravariant=True)
