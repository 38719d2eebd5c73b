"""`python -m platforms.config > platforms/schema.json` writes the schema that editors check platform files with."""

from __future__ import annotations

import json

from platforms.config.schema import schema

if __name__ == "__main__":
    print(json.dumps(schema(), indent=2))
