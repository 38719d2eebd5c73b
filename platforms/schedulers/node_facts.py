"""The words before a user's own command by which its log says what each of its nodes is (docs/wire.md, hpcml_node)."""

from __future__ import annotations

# `sh -c IF_THERE ARCHIVE PYTHON COMMAND…`: a pod starts although it has no archive.
IF_THERE = '[ ! -r "$0" ] || exec sh "$0" "$@"; shift; exec "$@"'


def words(archive: str, python: str, *, may_be_missing: bool = False) -> list[str]:
    """The words before the command: the code archive begins with a script of the shell (models/node.sh).

    Args:
        archive: where it lies on the machine.
        python: the interpreter that reads the facts.
        may_be_missing: the command runs without it, too.
    """
    return ["sh", *(["-c", IF_THERE] if may_be_missing else []), archive, python]
