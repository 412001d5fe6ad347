"""`python -m tools.keyword_types [--check]`: write pykclient/config/keywords.py, or compare it.

It has the settings of each client as the types of keywords, for editors and type checkers; all of
it comes from the config classes.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from pykclient.config.setting import REQUIRED
from tools.config_reference import CONFIGS
from tools.generated_document import write_or_compare

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pykclient.config.client import ClientConfig
    from pykclient.config.setting import Setting

PATH = Path("pykclient/config/keywords.py")
WIDTH = 100
INTRODUCTION = '''\
"""The settings of each client as keywords, with their types.

Written by `python -m tools.keyword_types` from the config classes. Do not edit.

Owner: none; types only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Literal, TypedDict

from pykclient.type_parameters import K, V

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike
    from ssl import SSLContext

    from pykclient.errors import CorruptRecordError, RecordDeserializationError
    from pykclient.serialization import DeserializerSetting, SerializerSetting

    OnRecordError = str | Callable[[CorruptRecordError | RecordDeserializationError], object]
'''


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; the result is the exit status."""
    return write_or_compare(arguments, "tools.keyword_types", PATH, lambda _: module())


def module() -> str:
    """Return the whole module."""
    fields = {config: list(_fields(config)) for config in CONFIGS}
    shared = [field for field in fields[CONFIGS[0]] if all(field in own for own in fields.values())]
    parts = [INTRODUCTION, "\nclass ClientSettings(TypedDict, total=False):"]
    parts.append('    """Keywords of every client. Times are milliseconds, sizes bytes."""\n')
    parts.extend(shared)
    for config in sorted(CONFIGS, key=lambda config: config.client):
        name = config.client.title()
        own = "\n".join(field for field in fields[config] if field not in shared)
        bases = "ClientSettings, Generic[K, V]" if "[K]" in own else "ClientSettings"
        parts.append(f"\n\nclass {name}Settings({bases}, total=False):")
        parts.append(f'    """Keywords of `{name}`. Times are milliseconds, sizes bytes."""\n')
        parts.append(own)
    return "\n".join(parts) + "\n"


def _fields(config: type[ClientConfig]) -> Iterator[str]:
    """Each keyword with its docstring, in order of their names."""
    for setting in sorted(config.settings(), key=lambda setting: setting.name):
        line = f"    {setting.name}: {_annotation(setting)}"
        if len(line) > WIDTH:
            line = line.replace("[", "[\n        ", 1)[:-1] + "\n    ]"
        yield f"{line}\n{_docstring(setting)}"


def _annotation(setting: Setting[object]) -> str:
    annotation = setting.kind.annotation
    takes_none = annotation == "object" or annotation.endswith("None")
    return f"{annotation} | None" if setting.default is None and not takes_none else annotation


def _docstring(setting: Setting[object]) -> str:
    default = "Required" if setting.default is REQUIRED else f"Default: {_default(setting)}"
    text = f"{setting.meaning} {default}; {setting.kind.allowed}."
    lines = textwrap.wrap(text, WIDTH - len('    """') - len('"""'), break_on_hyphens=False)
    end = "" if len(lines) == 1 else "\n    "
    return '    """' + "\n    ".join(lines) + end + '"""'


def _default(setting: Setting[object]) -> str:
    return setting.default_written or ("None" if setting.default is None else "empty")


if __name__ == "__main__":
    raise SystemExit(main())
