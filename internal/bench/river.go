package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// The bench of River's command line is a separate package. Its newest version on the module proxy is older than River
// itself; it drives the newest River.
const (
	riverVersion      = "v0.51.0"
	riverBenchVersion = "v0.25.0"
	riverPath         = "github.com/riverqueue/river"
)

const riverMain = `package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/cmd/river/riverbench"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

func run(ctx context.Context) error {
	jobs, err := strconv.Atoi(os.Args[2])
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, os.Args[1])
	if err != nil {
		return err
	}
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return riverbench.NewBenchmarker(driver, &riverbench.Config{Logger: logger}).Run(ctx, 0, jobs)
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
`

// river is River's bench, built.
type river struct{ path, what string }

// buildRiver builds it in a separate module.
func (b *bench) buildRiver(ctx context.Context) (*river, error) {
	if !b.opts.river {
		return nil, fmt.Errorf("left out by -river=false")
	}
	dir := filepath.Join(b.dir, "river")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for name, text := range map[string]string{"go.mod": "module riverbench\n\ngo 1.26\n", "main.go": riverMain} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	get := []string{"get", riverPath + "/cmd/river/riverbench@" + riverBenchVersion}
	for _, module := range []string{"", "/riverdriver", "/riverdriver/riverpgxv5", "/rivershared", "/rivertype"} {
		get = append(get, riverPath+module+"@"+riverVersion)
	}
	for _, args := range [][]string{get, {"build", "-o", "riverbench", "."}} {
		if err := goCommand(ctx, dir, args...); err != nil {
			return nil, err
		}
	}
	return &river{
		path: filepath.Join(dir, "riverbench"),
		what: fmt.Sprintf("River %s, by the bench of its command line %s, 4 connections", riverVersion,
			riverBenchVersion),
	}, nil
}

// goCommand runs the go command in a separate module.
func goCommand(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w: %s", args[0], err, lastLine(out))
	}
	return nil
}

var riverResult = regexp.MustCompile(`total jobs worked \[\s*(\d+) \].*overall job/sec \[\s*([\d.]+) \]`)

// run drains a queue and returns jobs per second, as River counts them.
func (r *river) run(ctx context.Context, b *bench, jobs int) (float64, error) {
	url, drop, err := b.database(ctx)
	if err != nil {
		return 0, err
	}
	defer drop()
	// Four connections gave River its best result.
	url = withParams(url, map[string]string{"pool_max_conns": "4"})
	out, err := exec.CommandContext(ctx, r.path, url, strconv.Itoa(jobs)).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, lastLine(out))
	}
	m := riverResult.FindSubmatch(out)
	if m == nil || string(m[1]) != strconv.Itoa(jobs) {
		return 0, fmt.Errorf("it ended with %q", lastLine(out))
	}
	return strconv.ParseFloat(string(m[2]), 64)
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(bytes.TrimSpace(out))), "\n")
	return lines[len(lines)-1]
}
