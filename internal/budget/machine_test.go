package budget

import (
	"testing"
	"testing/fstest"
)

func TestAvailable(t *testing.T) {
	t.Parallel()
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	mem := file("MemFree: 1 kB\nMemTotal:       8388608 kB\n")
	for name, c := range map[string]struct {
		root  fstest.MapFS
		bytes int64
		from  string
		def   int64
	}{
		"nothing says":  {fstest.MapFS{}, unknownMachine, "unknown", unknownMachine / 4},
		"machine alone": {fstest.MapFS{"proc/meminfo": mem}, 8 << 30, "machine", 2 << 30},
		"version 2": {fstest.MapFS{"proc/meminfo": mem, "proc/self/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("268435456\n")}, 256 << 20, "cgroup", 128 << 20},
		"version 2, above": {fstest.MapFS{"proc/meminfo": mem, "proc/self/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/b/memory.max": file("max\n"), "sys/fs/cgroup/a/memory.max": file("1073741824\n")}, 1 << 30,
			"cgroup", 512 << 20},
		"version 1": {fstest.MapFS{"proc/meminfo": mem,
			"proc/self/cgroup": file("9:name=systemd:/\n4:cpu,memory:/d/x\n"),
			"sys/fs/cgroup/memory/d/x/memory.limit_in_bytes": file("536870912\n")}, 512 << 20, "cgroup", 256 << 20},
		"version 1, own root": {fstest.MapFS{"proc/meminfo": mem, "proc/self/cgroup": file("4:memory:/docker/x\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("536870912\n")}, 512 << 20, "cgroup", 256 << 20},
		"no limit": {fstest.MapFS{"proc/meminfo": mem, "proc/self/cgroup": file("4:memory:/\n0::/\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("9223372036854771712\n"),
			"sys/fs/cgroup/memory.max":                   file("max\n")}, 8 << 30, "machine", 2 << 30},
		"above the machine": {fstest.MapFS{"proc/meminfo": mem, "proc/self/cgroup": file("0::/\n"),
			"sys/fs/cgroup/memory.max": file("99999999999\n")}, 8 << 30, "machine", 2 << 30},
		"garbage": {fstest.MapFS{"proc/meminfo": file("MemTotal: x kB"), "proc/self/cgroup": file("x\n0::\n"),
			"sys/fs/cgroup/memory.max": file("-1")}, unknownMachine, "unknown", unknownMachine / 4},
	} {
		got := Available(c.root)
		if got.Bytes != c.bytes || got.From != c.from || got.Default() != c.def {
			t.Errorf("%s: %+v, default %d, want %d of %s, default %d", name, got, got.Default(), c.bytes, c.from, c.def)
		}
	}
}
