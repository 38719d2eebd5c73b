#!/bin/sh
# `Prolog=` of slurm.conf, or the command of an init container (docs/vetting.md). It ends with 1 only if a fact of this
# node is not what an administrator has signed; whatever else goes wrong here, it ends with 0 and a line in syslog, as
# Slurm takes a node out of service whose prolog ends with anything else. Beside it lie models.pyz and limits.json.
python=/usr/bin/python3
seconds=8
folder=${0%/*}
PATH=/usr/sbin:/usr/bin:/sbin:/bin:/opt/rocm/bin # slurmd sets none
export PATH

verdict=0
trap 'exit $verdict' EXIT # also where the shell itself fails, as when it cannot fork
trap 'exit 0' TERM HUP INT QUIT USR1 USR2 # slurmd sends SIGTERM, and SIGKILL a moment later
trap '' PIPE
say() {
    echo "hpc-ml-bench-vet: $1: this node is not vetted"
    logger -t hpc-ml-bench-vet "$1: this node is not vetted" >/dev/null 2>&1 & # it may hang, too
    sleep 1
}
# slurmstepd blocks most other signals, and a late one does no harm to whoever has this process's number then.
trap 'kill -KILL $vet; say "no answer within $seconds s"; exit 0' URG

# slurmd waits until nobody has its pipe open. A process that hangs in a file system would keep it open for ever.
output=/dev/null
[ -n "${SLURM_JOB_ID:-}" ] || output=/dev/stdout # by hand, as HealthCheckProgram, in a pod
"$python" -I "$folder/models.pyz" vet limits "$folder/limits.json" </dev/null >"$output" 2>&1 &
vet=$!
(sleep "$seconds" && kill -URG $$) </dev/null >/dev/null 2>&1 &
alarm=$!
wait "$vet" # a signal interrupts it, as it would not a command in the foreground
code=$?
kill "$alarm" 2>/dev/null
case $code in
0) ;;
97) verdict=1 ;; # UNFIT of models/vet.py
*) say "vet ended with exit code $code" ;;
esac
