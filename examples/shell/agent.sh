#!/bin/sh
# An agent for the executor exec that counts to a number. If the message has no number, it asks for one.
# The run is one line of JSON on stdin, and every line on stdout is an event.
read -r run

event() {
	format=$1
	shift
	printf "$format\n" "$@"
}

# The last number in the new messages, and the number in the checkpoint. sed is not a JSON parser, but
# good enough for a demonstration. a2ad returns a checkpoint byte for byte.
messages=$(printf '%s' "$run" | sed -n 's/.*"messages":\[\(.*\)\].*/\1/p')
limit=$(printf '%s' "$messages" | grep -o '"text":"[^"]*"' | grep -o '[0-9][0-9]*' | tail -n 1)
n=$(printf '%s' "$run" | sed -n 's/.*"checkpoint":{"counted": \([0-9]*\)}.*/\1/p')

if [ -z "$limit" ]; then
	message='{"parts": [{"text": "How far?"}]}'
	event '{"statusUpdate": {"status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": %s}}}' "$message"
	exit
fi
append=true
if [ -z "$n" ]; then n=0 append=false; fi
while [ "$n" -lt "$limit" ]; do
	sleep "${PAUSE:-0.1}"
	n=$((n + 1))
	# The checkpoint comes first: it is saved together with the event that follows it.
	event '{"checkpoint": {"counted": %d}}' "$n"
	artifact=$(printf '{"artifactId": "count", "parts": [{"text": "%d\\n"}]}' "$n")
	event '{"artifactUpdate": {"artifact": %s, "append": %s}}' "$artifact" "$append"
	append=true
done
echo "counted to $limit" >&2 # a2ad logs this with the id of the task
# Exit code 0 completes the task. After 75 a2ad retries the run; any other code fails the task.
