"""``python -m pykclient``: the same as the command ``pykclient``."""

import sys

from pykclient.cli import main

sys.exit(main())
