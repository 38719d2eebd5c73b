#!/bin/sh
# The job of both sides: it lasts so many seconds, prints one figure, and when it ended.
sleep "$1"
echo "throughput: 123.4 samples/s"
echo "ended: $(date +%s.%N)"
