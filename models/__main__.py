"""Starts what a job is to do: `python -m models`, or the archive of this package (models/command_line.py)."""

import sys

from models import host  # noqa: F401 (before torch, also in processes that a loader spawns: it records our cores)

if __name__ == "__main__":
    if sys.argv[1:2] == ["node"]:
        # Nearly each job of another program starts with this, and what it loads, its node must compile each time.
        from models.node import main

        sys.exit(main(sys.argv[2:]))
    from models.command_line import leave
    from models.command_line import main as main_of_job

    leave(main_of_job())
