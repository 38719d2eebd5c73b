"""The words before a user's own command by which its log says what each of its nodes is (docs/wire.md, hpcml_node)."""

from __future__ import annotations

import shlex
from pathlib import Path

# Its arguments are a Python, the code archive and the command. The first of a node's ranks is run by models/node.py;
# without a Python that can do that, the shell says what it can.
SCRIPT = r"""
archive=$1; shift
if [ "${SLURM_LOCALID:-0}" = 0 ]; then
    if [ -r "$archive" ] && "$0" -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; then
        exec "$0" "$archive" node "$@"
    fi
    cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1 | tr -d '"\\')
    printf ':::MLLOG {"namespace": "hpcml", "time_ms": %s000, "event_type": "POINT_IN_TIME", "key": "hpcml_node", ' \
        "$(date +%s)"
    printf '"value": {"node": "%s", "part": "host", "facts": {"kernel": "%s", "cpu": "%s", "read_by": "sh"}}, ' \
        "$(uname -n)" "$(uname -r)" "$cpu"
    printf '"metadata": {"file": "node.py", "lineno": 0, "rank": %s, "seq": 0}}\n' \
        "${SLURM_NODEID:-${JOB_COMPLETION_INDEX:-0}}"
fi
exec "$@"
""".strip()


def shell_words(archive: Path | None, python: str, place: str) -> list[str]:
    """The words for a shell script; [] for a job without facts.

    Args:
        archive: that of the job.
        python: the interpreter, quoted.
        place: where the archive lies on the machine.
    """
    return [] if archive is None else ["sh", "-c", shlex.quote(SCRIPT), python, shlex.quote(place)]
