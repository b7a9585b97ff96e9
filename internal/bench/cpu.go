package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ticks is the unit of CPU time in /proc: USER_HZ, 100 on every Linux that Go supports.
const ticks = time.Second / 100

// usage is the CPU time used since the processes began.
type usage struct{ server, postgres, own time.Duration }

func (u usage) minus(v usage) usage {
	return usage{u.server - v.server, u.postgres - v.postgres, u.own - v.own}
}

// usage reads the CPU time of servers, of all PostgreSQL processes and of this process.
func (b *bench) usage(servers ...*server) (u usage, err error) {
	for _, s := range servers {
		p, err := procStat(s.pid())
		if err != nil {
			return u, err
		}
		u.server += p.cpu
	}
	if u.postgres, err = treeCPU(b.pg.Pid()); err != nil {
		return u, err
	}
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return u, err
	}
	u.own = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	return u, nil
}

type proc struct {
	parent   int
	cpu      time.Duration // of the process
	children time.Duration // of its children that ended
}

// procStat reads fields 4 and 14 to 17 of /proc/PID/stat.
func procStat(pid int) (p proc, err error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return p, err
	}
	// The program's name, in parentheses, may contain anything.
	end := strings.LastIndexByte(string(text), ')')
	fields := strings.Fields(string(text[end+1:]))
	if end < 0 || len(fields) < 15 {
		return p, fmt.Errorf("/proc/%d/stat is not understood", pid)
	}
	number := func(field int) int64 {
		n, _ := strconv.ParseInt(fields[field-3], 10, 64)
		return n
	}
	p.parent = int(number(4))
	p.cpu = time.Duration(number(14)+number(15)) * ticks
	p.children = time.Duration(number(16)+number(17)) * ticks
	return p, nil
}

// treeCPU adds the CPU time of a process, its children and its ended children.
func treeCPU(pid int) (time.Duration, error) {
	root, err := procStat(pid)
	if err != nil {
		return 0, err
	}
	sum := root.cpu + root.children
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, err := procStat(child); err == nil && p.parent == pid {
			sum += p.cpu + p.children
		}
	}
	return sum, nil
}

// residentKB returns the resident memory of a process.
func residentKB(pid int) (int64, error) {
	value := procField(filepath.Join("/proc", strconv.Itoa(pid), "status"), "VmRSS")
	n, _, _ := strings.Cut(value, " ")
	return strconv.ParseInt(n, 10, 64)
}

// openFiles returns the number of open file descriptors of a process.
func openFiles(pid int) (int, error) {
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	return len(entries), err
}
