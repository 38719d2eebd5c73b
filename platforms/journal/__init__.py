"""What each session of a run did, written by it alone as it happens, so that another one can go on where it ended.

A session's file is runs/<run id>/sessions/<session>.jsonl. It is created with O_EXCL, and nobody else writes to it;
whoever goes on in its place says so in its own file and then creates <session>.taken with O_EXCL. So no file system
needs to know locks. That a session lives is seen at its process, on this machine, and elsewhere at its file's time,
which it moves on with every beat and which is compared with a time that the same file system has just given
(docs/resuming.md).
"""

from platforms.journal.life import MISSED, alive, lives
from platforms.journal.past import (
    ASKED,
    DONE,
    FIRST,
    FOLDER,
    NO_RUNS,
    PENDING,
    Attempt,
    Past,
    read,
    recorded,
    sessions,
    taken,
)
from platforms.journal.record import Journal, TakenOver, take

__all__ = [
    "ASKED",
    "DONE",
    "FIRST",
    "FOLDER",
    "MISSED",
    "NO_RUNS",
    "PENDING",
    "Attempt",
    "Journal",
    "Past",
    "TakenOver",
    "alive",
    "lives",
    "read",
    "recorded",
    "sessions",
    "take",
    "taken",
]
