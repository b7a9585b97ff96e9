//go:build unix && !linux

package exec

import osexec "os/exec"

// awaitExit returns when the command has ended, and reaps it. Only on Linux can the id of the group be kept for later
// signals.
func awaitExit(cmd *osexec.Cmd) { _ = cmd.Wait() }
