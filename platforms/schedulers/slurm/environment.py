"""Which variables of the login node's environment reach Slurm's commands: which cluster, who pays, and nothing else.

Slurm's commands read options from variables, and sbatch lets them override the #SBATCH lines of a script. What a person
has set for work by hand (SQUEUE_PARTITION, SCANCEL_STATE, SLURM_TIME_FORMAT) would hide our jobs, keep them running
after a cancel, or submit them twice.
"""

from __future__ import annotations

from platforms.config import sbatch_options

_CLUSTER = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")  # how and with which right the controller is reached
_PAYS = {"SBATCH_ACCOUNT": "--account", "SBATCH_WCKEY": "--wckey"}  # each with the option of sbatch that replaces it
# The script uses only builtins of a POSIX shell, so that it starts no program. It may take a line within a variable's
# value for a variable, which is harmless: it unsets what does not exist. It has no here-document, because bash before
# 5.1 writes those to files in /tmp: where /tmp is full, bash reports an error and goes on without the lines.
_UNSET_SCRIPT = """\
for name in $(export -p | while IFS='=' read -r name rest; do
    name=${{name##* }}
    case $name in
    (*[!A-Za-z0-9_]* | {kept}) ;;
    (SLURM_* | SBATCH_* | SQUEUE_* | SCANCEL_* | SACCT_* | SCONTROL_* | SINFO_*) echo "$name" ;;
    esac
done); do unset "$name"; done
"""


def unset_slurm_variables(*kept: str) -> str:
    """Return the lines of shell with which every script that calls Slurm begins; `kept` are variables that stay."""
    return _UNSET_SCRIPT.format(kept=" | ".join((*_CLUSTER, *kept)))


UNSET_SLURM_VARIABLES = unset_slurm_variables()
# With this a query begins: rows.py reads times in UTC.
QUERY_PREAMBLE = f"{UNSET_SLURM_VARIABLES}export TZ=UTC SLURM_TIME_FORMAT=standard\n"


def submission_preamble(script: str) -> str:
    """Return the lines of shell before sbatch. The environment may say who pays where the script does not."""
    directives = sbatch_options.directives_of_script(script).values()
    kept = [name for name, option in _PAYS.items() if sbatch_options.last_value(option, directives) is None]
    return unset_slurm_variables(*kept)
