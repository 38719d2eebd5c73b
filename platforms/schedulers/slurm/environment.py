"""What the environment on the login node may say to Slurm's commands: which cluster, who pays, and nothing else.

Slurm's commands read options from variables, and there they go before the #SBATCH lines of a script. What somebody has
set for the jobs that he looks at by hand (SQUEUE_PARTITION, SCANCEL_STATE, SLURM_TIME_FORMAT) would hide ours, let them
run on, or submit them twice.
"""

from __future__ import annotations

from platforms.config import sbatch_options

# How the controller is reached, and by what right.
_REACH = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")
# Who pays, where the script does not say it.
_PAYS = {"SBATCH_ACCOUNT": "--account", "SBATCH_WCKEY": "--wckey"}
# Builtins of a POSIX shell only, so no program is started. A line within a variable's value may be taken for a
# variable; to unset one that is not there is nothing. No here-document: bash before 5.1 puts them into files in /tmp,
# which on a login node may be full, and then says so and goes on without the lines.
_CLEAN = """\
for name in $(export -p | while IFS='=' read -r name rest; do
    name=${{name##* }}
    case $name in
    (*[!A-Za-z0-9_]* | {kept}) ;;
    (SLURM_* | SBATCH_* | SQUEUE_* | SCANCEL_* | SACCT_* | SCONTROL_* | SINFO_*) echo "$name" ;;
    esac
done); do unset "$name"; done
"""


def unset_slurm_variables(*kept: str) -> str:
    """Lines of shell that every script begins with which calls Slurm; `kept` are variables that stay beside ours."""
    return _CLEAN.format(kept=" | ".join((*_REACH, *kept)))


UNSET_SLURM_VARIABLES = unset_slurm_variables()
# Before a question: times in UTC, as states.py reads them.
QUERY_PREAMBLE = f"{UNSET_SLURM_VARIABLES}export TZ=UTC SLURM_TIME_FORMAT=standard\n"


def submission_preamble(script: str) -> str:
    """Before sbatch: who pays may stand in the environment, where neither the platform nor its directives say it."""
    lines = sbatch_options.directives_of_script(script).values()
    return unset_slurm_variables(
        *(name for name, option in _PAYS.items() if sbatch_options.last_value(option, lines) is None)
    )
