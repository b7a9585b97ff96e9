package budget

import (
	"io/fs"
	"math"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// Machine is how much memory the process may use, and what says so.
type Machine struct {
	Bytes int64
	From  string // GOMEMLIMIT, cgroup, machine or unknown
}

// unknownMachine is assumed where the amount of memory cannot be determined.
const unknownMachine = 2 << 30

// Available returns how much memory the process may use, according to GOMEMLIMIT, the cgroups of
// the process (version 2 or 1) or else the machine. root is the root of the file system.
func Available(root fs.FS) Machine {
	m := Machine{unknownMachine, "unknown"}
	if n, ok := memTotal(root); ok {
		m = Machine{n, "machine"}
	}
	if n, ok := cgroupLimit(root); ok && n < m.Bytes {
		m = Machine{n, "cgroup"}
	}
	if n := debug.SetMemoryLimit(-1); n < m.Bytes && n != math.MaxInt64 {
		m = Machine{n, "GOMEMLIMIT"}
	}
	return m
}

// Default is the default budget: half of memory that is reserved for the process, and a quarter of
// a shared machine.
func (m Machine) Default() int64 {
	if m.From == "machine" || m.From == "unknown" {
		return max(m.Bytes/4, Least)
	}
	return max(m.Bytes/2, Least)
}

// HoldTo makes the garbage collector keep the heap below the limit of the cgroup, unless GOMEMLIMIT
// is set. Otherwise the heap could grow to twice what is in use.
func (m Machine) HoldTo() {
	if m.From == "cgroup" {
		debug.SetMemoryLimit(m.Bytes / 10 * 9)
	}
}

func memTotal(root fs.FS) (int64, bool) {
	text, err := fs.ReadFile(root, "proc/meminfo")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return n << 10, err == nil && n > 0
		}
	}
	return 0, false
}

// cgroupLimit returns the lowest limit of the cgroup of the process and those above it. Inside a
// container the path in /proc may not exist: then the root of the mount is the container's own
// cgroup.
func cgroupLimit(root fs.FS) (int64, bool) {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0, false
	}
	least, found := int64(math.MaxInt64), false
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		mount, file := "", ""
		switch {
		case fields[0] == "0" && fields[1] == "":
			mount, file = "sys/fs/cgroup", "memory.max"
		case containsController(fields[1], "memory"):
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for dir := path.Join("/", fields[2]); ; dir = path.Dir(dir) {
			if n, ok := limitIn(root, path.Join(mount, dir, file)); ok {
				least, found = min(least, n), true
			}
			if dir == "/" {
				break
			}
		}
	}
	return least, found
}

func containsController(list, name string) bool {
	for c := range strings.SplitSeq(list, ",") {
		if c == name {
			return true
		}
	}
	return false
}

// limitIn reads one limit. A limit larger than any machine counts as none.
func limitIn(root fs.FS, name string) (int64, bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil && n > 0 && n < 1<<60
}
