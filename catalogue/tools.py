"""What the tests of this folder share: the shell script of a job, and the JSON in its log."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

CHECK = 'command -v %s >/dev/null || { echo "%s is not on this node: %s"; exit 127; }\n'


def script(text: str, **needs: str) -> list[str]:
    """Make the command of a job from a shell script, which stops at the first command that fails.

    Args:
        needs: the programs that it calls, each with where it comes from; the job ends with that sentence where it is
            missing. The first is the job's program, of which run.json has the hash.
    """
    checks = "".join(CHECK % (program, program, source) for program, source in needs.items())
    return ["sh", "-ec", checks + text, *needs]


def json_in(log: Path, key: str) -> Any:
    """Read the JSON object in a log that begins with this key on its own or on the next line."""
    text = log.read_text(encoding="utf-8", errors="replace")
    found = re.search(rf'\{{\s*"{re.escape(key)}"\s*:', text)
    if found is None:
        raise ValueError(f"{log} has no JSON object that begins with {key!r}")
    return json.JSONDecoder().raw_decode(text, found.start())[0]
