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
vet=
trap 'exit $verdict' EXIT # also where the shell itself fails
give_up() {
    [ -z "$vet" ] || kill -KILL "$vet"
    say "$1: this node is not vetted"
    exit 0
}
say() {
    echo "hpc-ml-bench-vet: $1"
    logger -t hpc-ml-bench-vet "$1" >/dev/null 2>&1 & # it may hang, too
    sleep 1
}
trap 'give_up "no answer within $seconds s"' TERM
trap 'give_up "interrupted"' HUP INT
trap '' PIPE # slurmd may close its pipe

# slurmd waits until nobody has its pipe open. A process that hangs in a file system would keep it open for ever.
output=/dev/null
[ -z "${KUBERNETES_SERVICE_HOST:-}" ] || output=/dev/stdout
"$python" -I "$folder/models.pyz" vet limits "$folder/limits.json" </dev/null >"$output" 2>&1 &
vet=$!
(
    sleep "$seconds"
    kill -TERM $$
) </dev/null >/dev/null 2>&1 &
alarm=$!
wait "$vet" # a signal ends it, which is why vet does not run in the foreground
code=$?
vet=
kill "$alarm" 2>/dev/null
case $code in
0) ;;
97) verdict=1 ;; # UNFIT of models/vet.py
*) say "vet ended with exit code $code: this node is not vetted" ;;
esac
exit $verdict
