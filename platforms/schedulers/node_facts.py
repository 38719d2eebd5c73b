"""The words before a user's own command by which its log says what each of its nodes is (docs/wire.md, hpcml_node)."""

from __future__ import annotations

# `sh -c IF_THERE ARCHIVE PYTHON COMMAND…`: without the archive only the facts are missing.
IF_THERE = '[ ! -r "$0" ] || exec sh "$0" "$@"; shift; exec "$@"'


def words(archive: str, python: str) -> list[str]:
    """The words before the command, unquoted: the code archive begins with a script of the shell (models/node.sh).

    Args:
        archive: where it lies on the machine.
        python: the interpreter that reads the facts.
    """
    return ["sh", "-c", IF_THERE, archive, python]


def shell_words(archive: str, python: str) -> list[str]:
    """The same for a script.

    Args:
        archive, python: as the script has them, quoted.
    """
    return ["sh", "-c", f"'{IF_THERE}'", archive, python]
