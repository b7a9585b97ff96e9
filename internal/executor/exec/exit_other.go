//go:build !linux

package exec

import osexec "os/exec"

// awaitExit returns when the command has ended, and reaps it: elsewhere than on Linux
// the id of the group is not kept for the signals that follow.
func awaitExit(cmd *osexec.Cmd) { _ = cmd.Wait() }
