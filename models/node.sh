#!/bin/sh
# `sh models-….pyz PYTHON COMMAND…` runs a command with a look at its node before and after it (models/node.py). This
# script is the beginning of the code archive; behind it is the zip file that Python runs. Of the ranks that srun starts
# on a node the first one looks. Without a Python that can do it, the shell says what it can. The command finds the
# archive by HPC_ML_BENCH_MODELS.
export HPC_ML_BENCH_MODELS="$0"
python=$1
shift
if [ "${SLURM_LOCALID:-0}" = 0 ]; then
    if "$python" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; then
        exec "$python" -I "$0" node "$@"  # -I: PYTHONPATH is the command's, and may hide modules from ours
    fi
    cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1 | tr -d '"\\')
    rank=${SLURM_NODEID:-${JOB_COMPLETION_INDEX:-0}}
    printf ':::MLLOG {"namespace": "hpcml", "time_ms": %s000, "event_type": "POINT_IN_TIME", ' "$(date +%s)"
    printf '"key": "hpcml_node", "value": {"node": "%s", "part": "host", "facts": {"kernel": "%s", ' \
        "${SLURMD_NODENAME:-$(uname -n)}" "$(uname -r)"
    printf '"cpu": "%s", "read_by": "sh"}}, "metadata": {"file": "node.py", "lineno": 0, "rank": %s, "seq": 0}}\n' \
        "$cpu" "$rank"
fi
exec "$@"
exit 127
