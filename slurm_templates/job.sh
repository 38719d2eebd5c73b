#!/bin/bash
# {{ spec.test | line }} on {{ spec.platform | line }}, {{ spec.layout }}
{% for directive in directives %}
#SBATCH {{ directive }}
{% endfor %}

folder={{ folder | q }}
exec {own_log}>&1  # the log as Slurm opened it, whatever becomes of the file of that name

# Writes the file `exit` at the end of this job: how it ended, when, and how long the log was then.
# `exit 0` before the ranks have run is not a success.
finish() {
    code=$?
    trap - EXIT
    if [ -z "${ended:-}" ] && [ "$code" -eq 0 ]; then
        echo "this script ended before its ranks did" >&2
        code=70
    fi
    bytes=$(stat -c %s "$folder/log" 2>/dev/null || echo 0)
    # What was written counts, too, where the log was cut or replaced since.
    written=$(sed -n 's/^pos:[[:space:]]*//p' "/proc/$$/fdinfo/$own_log" 2>/dev/null)
    [ "/proc/$$/fd/$own_log" -ef "$folder/log" ] || bytes=$((bytes + ${written:-0}))
    [ "${written:-0}" -le "$bytes" ] || bytes=$written
    end="exit_code=$code ended=$(date +%s) log_bytes=$bytes"
    echo "$end nodes=${SLURM_JOB_NODELIST:-} steps_known={{ steps_known }} refused=${refused:-}" > "$folder/exit.draft" &&
        mv "$folder/exit.draft" "$folder/exit"
    exit "$code"
}
trap finish EXIT
[ -s "$folder/id" ] || echo "$SLURM_JOB_ID" > "$folder/id"  # its submitter may have died before
refuse() {
    refused=$1
    echo "$2" >&2
    exit 78
}

# Refuse to start if the start limit has passed, or if Slurm starts this job a second time: the devices are for others.
[ "$(date +%s)" -le "$(cat "$folder/not_after")" ] ||
    refuse late "it starts later than {{ spec.start_limit_s | whole }} s after it was submitted, its start limit"
mkdir "$folder/started" || refuse again "it has been started before: Slurm put it back into the queue"

export SLURM_EXPORT_ENV=ALL  # srun passes this environment to the ranks; sbatch took nothing from the login node
{% for name, value in env.items() %}
{% if name is secret %}
# {{ name }} comes with the submission
{% else %}
export {{ name }}={{ value | q }}
{% endif %}
{% endfor %}
{% if modules %}

type module >/dev/null 2>&1 || . /etc/profile
{% for module in modules %}
module load {{ module | q }} || refuse module {{ ("module load " ~ module ~ " failed") | q }}
{% endfor %}
{% endif %}
{% if setup %}

{% for line in setup %}
{{ line }}
{% endfor %}
{% endif %}

{% if python_folder %}
export PATH={{ python_folder | q }}:"$PATH"  # python3 of the venv that `prepare --env` made, if it exists
{% endif %}
{% if python %}
python={{ python | q }}
{% if fallback_python %}
[ -x "$python" ] || python={{ fallback_python | q }}
{% endif %}
{% if not has_container %}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' ||
    refuse python "$python is not there or older than Python 3.8: name another one in \`python:\` or \`modules:\` of the platform"
{% endif %}
{% endif %}
{% if rendezvous %}
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 12000))  # below the ports that Linux gives to outgoing connections
{% endif %}

{% if vet %}
# Is each node as good as its siblings? Those that are not stand in the file `unfit`, and the job begins elsewhere.
{{ vet | wrap }} || true
[ ! -s "$folder/unfit" ] || refuse "unfit:$(cat "$folder/unfit")" "vet: a node is unfit, so the ranks do not start"

{% endif %}
{{ launch | wrap }}
ended=$?
exit "$ended"
