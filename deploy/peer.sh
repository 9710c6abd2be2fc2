#!/bin/sh
# Run one peer in a container, such that `--restart on-failure` restarts it only where that helps.
#
# A container engine knows only "failed or not". So the statuses after which a restart would end in the same way become 0,
# and are written to the log: 1 (not certified), 2 (bad input), 4 (another site ended the run) and 5 (cannot resume). A
# parked run (75), a crash and a kill stay failures, so the peer is started again and resumes from its journal.
eigenmesh site run --quiet "$@" &
peer=$!
trap 'stopped=yes; kill -TERM "$peer" 2>/dev/null' TERM INT
wait "$peer"
status=$?
# A signal interrupts the first wait; the peer then parks the run before it ends.
while kill -0 "$peer" 2>/dev/null; do
  wait "$peer"
  status=$?
done
case $status in
  0) ;;
  1 | 2 | 4 | 5) echo "eigenmesh site run ended with status $status; it is not started again" >&2; status=0 ;;
  *) [ -z "$stopped" ] || status=0 ;;
esac
exit "$status"
