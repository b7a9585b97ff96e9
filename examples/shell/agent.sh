#!/bin/sh
# An agent for the executor exec. It asks how far to count, counts, and reports each number. The run is
# one line of JSON on stdin, and every line on stdout is an event.
read -r run

event() {
	format=$1
	shift
	printf "$format\n" "$@"
}

# The first number of the newest message, and that of the checkpoint, without a JSON parser: good
# enough for a demonstration. A checkpoint comes back as it was written, byte for byte.
limit=$(printf '%s' "$run" | sed -n 's/.*"messages":\[\(.*\)\].*/\1/p' | grep -o '"text":"[^"]*"' | grep -o '[0-9][0-9]*' | tail -n 1)
n=$(printf '%s' "$run" | sed -n 's/.*"checkpoint":{"counted": \([0-9]*\)}.*/\1/p')

if [ -z "$limit" ]; then
	event '{"statusUpdate": {"status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": {"parts": [{"text": "How far?"}]}}}}'
	exit
fi
append=true
if [ -z "$n" ]; then n=0 append=false; fi
while [ "$n" -lt "$limit" ]; do
	sleep "${PAUSE:-0.1}"
	n=$((n + 1))
	# The checkpoint first: it is saved together with the event that follows it.
	event '{"checkpoint": {"counted": %d}}' "$n"
	event '{"artifactUpdate": {"artifact": {"artifactId": "count", "parts": [{"text": "%d\\n"}]}, "append": %s}}' "$n" "$append"
	append=true
done
echo "counted to $limit" >&2 # goes to the log of a2ad, with the id of the task
# Exit code 0: completed. 75 would be "try again", any other a failure.
