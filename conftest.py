"""The fixtures that a benchmark test uses: `platform`, `run` and `record`, and nothing else.

They are defined in harness/fixtures.py and loaded with harness/plugin.py, because a centre's own tests lie in folders
where pytest does not find this file.
"""

from harness.fixtures import platform, record, run

__all__ = ["platform", "record", "run"]
