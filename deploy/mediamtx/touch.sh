#!/bin/sh
# MediaMTX runs this while a path has a publisher. It keeps the path's pin from expiring: start the agents with
# --pin-ttl 2m, so that a path without a publisher loses its pin two minutes later.
agent=${AGENT:-http://127.0.0.1:8401}
while kill -0 "$PPID" 2>/dev/null; do # MediaMTX stops this script, unless it is killed itself
	curl -fsS -m 5 -o /dev/null -H 'Content-Type: application/json' -d '{"touch":true}' "$agent/v1/rooms/$MTX_PATH/resolve"
	sleep 20
done
