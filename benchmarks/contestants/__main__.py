"""``python -m contestants <module> <action> <job as JSON>``: do it, print its figures as JSON."""

from __future__ import annotations

import importlib
import json
import sys

from contestants.job import Job

module, action, settings = sys.argv[1:]
do = getattr(importlib.import_module(f"contestants.{module}"), action)
print(json.dumps(do(Job(**json.loads(settings)))))
