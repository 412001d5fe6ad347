"""``python -m contestants <module> <produce|consume> <job as JSON>``: do it, print what it took."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import asdict

from contestants.job import Job

module, action, settings = sys.argv[1:]
do = getattr(importlib.import_module(f"contestants.{module}"), action)
print(json.dumps(asdict(do(Job(**json.loads(settings))))))
