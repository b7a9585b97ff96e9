package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// machine describes where figures come from; a rate has no meaning without it.
type machine struct {
	Cores      int               `json:"cores"`
	CPU        string            `json:"cpu"`
	Memory     string            `json:"memory"`
	OS         string            `json:"os"`
	Go         string            `json:"go"`
	PostgreSQL string            `json:"postgresql"`
	Settings   map[string]string `json:"settings"`
	Flush      time.Duration     `json:"flush_ns"` // median fdatasync of 8 KiB
	Plain      float64           `json:"plain_us"` // CPU of a plain transaction: see measureSpeed
	Speed      float64           `json:"speed"`    // of the reference machine, at most 1
	LoadBefore float64           `json:"load_before"`
	LoadAfter  float64           `json:"load_after"`
	Commit     string            `json:"commit,omitempty"`
	Date       string            `json:"date"`
}

var shownSettings = []string{
	"fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "commit_delay", "shared_buffers",
	"max_wal_size",
	"autovacuum_naptime", "checkpoint_timeout", "jit",
}

func (b *bench) machine(ctx context.Context) (machine, error) {
	m := machine{
		Cores: runtime.NumCPU(), CPU: procField("/proc/cpuinfo", "model name"),
		Memory: procField("/proc/meminfo", "MemTotal"),
		OS:     kernel(), Go: runtime.Version(), Settings: make(map[string]string), LoadBefore: loadAverage(),
		Commit: b.commit(ctx), Date: time.Now().UTC().Format(time.DateOnly),
	}
	conn, err := pgx.Connect(ctx, b.pg.URL("postgres"))
	if err != nil {
		return m, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, name := range shownSettings {
		var value string
		if err := conn.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return m, err
		}
		m.Settings[name] = value
	}
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		if m.Settings[name] != "on" {
			return m, fmt.Errorf("%s is %s: figures need full durability", name, m.Settings[name])
		}
	}
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&m.PostgreSQL); err != nil {
		return m, err
	}
	m.Flush, err = flushTime(b.pg.Dir())
	return m, err
}

// flushTime returns the time in which the disk of dir makes 8 KiB durable.
func flushTime(dir string) (time.Duration, error) {
	f, err := os.OpenFile(filepath.Join(dir, "flush"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	page := make([]byte, 8<<10)
	for range 64 {
		if _, err := f.Write(page); err != nil {
			return 0, err
		}
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	took := make([]time.Duration, 200)
	for i := range took {
		start := time.Now()
		if _, err := f.WriteAt(page, int64(i%64)*int64(len(page))); err != nil {
			return 0, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return 0, err
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

func procField(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func kernel() string {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	return "Linux " + strings.TrimSpace(string(text))
}

// loadAverage returns the load average of the last minute.
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}
