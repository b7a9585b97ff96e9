package deploycheck

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/sirupsen/logrus" //nolint:depguard // compose-go warns there
)

const repository = "../.."

// warnings collects the warnings of the library, which has one global logger. Its tests do not run in parallel.
type warnings struct{ list []error }

func (w *warnings) Levels() []logrus.Level {
	return []logrus.Level{logrus.WarnLevel, logrus.ErrorLevel}
}
func (w *warnings) Fire(e *logrus.Entry) error {
	w.list = append(w.list, errors.New(e.Message))
	return nil
}

// load reads files as docker compose config does, with an empty environment and no .env. A warning of compose is an
// error.
func load(ctx context.Context, files []string, profiles ...string) (*types.Project, error) {
	var warned warnings
	logger := logrus.StandardLogger()
	logger.SetOutput(io.Discard)
	old := logger.ReplaceHooks(make(logrus.LevelHooks))
	defer logger.ReplaceHooks(old)
	logger.AddHook(&warned)
	options, err := cli.NewProjectOptions(files, cli.WithDiscardEnvFile, cli.WithInterpolation(true),
		cli.WithConsistency(true), cli.WithProfiles(profiles))
	if err != nil {
		return nil, err
	}
	project, err := options.LoadProject(ctx)
	return project, errors.Join(append(warned.list, err)...)
}

// Compose loads the file without profiles, with its profile, with the file for high availability, and as compose prints
// it.
func TestComposeAcceptsTheFiles(t *testing.T) {
	file := filepath.Join(repository, "docker-compose.yml")
	ha := filepath.Join(repository, "deploy", "compose", "ha.yml")
	for _, tt := range []struct {
		files, profiles, services []string
	}{
		{[]string{file}, nil, []string{"a2ad-1", "a2ad-2", "migrate", "postgres", "proxy", "secrets"}},
		{[]string{file}, []string{"observability"}, []string{"a2ad-1", "a2ad-2", "grafana", "migrate", "postgres",
			"prometheus", "proxy", "secrets"}},
		{[]string{file, ha}, nil, []string{"a2ad-1", "a2ad-2", "a2ad-3", "etcd-1", "etcd-2", "etcd-3", "migrate",
			"postgres-1", "postgres-2", "postgres-3", "proxy", "secrets"}},
	} {
		project, err := load(t.Context(), tt.files, tt.profiles...)
		if err != nil {
			t.Errorf("%q with profiles %q: %v", tt.files, tt.profiles, err)
			continue
		}
		names := project.ServiceNames()
		slices.Sort(names)
		if !slices.Equal(names, tt.services) {
			t.Errorf("%q with profiles %q start %q, want %q", tt.files, tt.profiles, names, tt.services)
		}
		for _, s := range project.Services {
			for _, v := range s.Volumes {
				if v.Type != types.VolumeTypeBind {
					continue
				}
				if _, err := os.Stat(v.Source); err != nil { // Docker would create an empty directory instead
					t.Errorf("%s mounts what is not there: %v", s.Name, err)
				}
			}
		}
		printed, err := project.MarshalYAML()
		if err != nil {
			t.Fatal(err)
		}
		again := filepath.Join(t.TempDir(), "docker-compose.yml")
		if err := os.WriteFile(again, printed, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := load(t.Context(), []string{again}, tt.profiles...); err != nil {
			t.Errorf("what docker compose config prints cannot be read: %v", err)
		}
	}
}

// Planted faults must be found.
func TestComposeFaultsAreFound(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(repository, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ old, new, want string }{
		{"    stop_grace_period: 60s", "    stop_grace: 60s", "stop_grace"},
		{"${A2AD_PUBLIC_URL:-http://127.0.0.1:8080}", "${A2AD_PUBLIC_URL}", "A2AD_PUBLIC_URL"},
		{"      a2ad-2: { condition: service_started }", "      prometheus: { condition: service_started }",
			"prometheus"},
		{"name: a2ad\n", "name: a2ad\nversion: \"3\"\n", "obsolete"},
		{"      - postgres:/var/lib", "      - nobodys:/var/lib", "nobodys"},
		{"condition: service_healthy", "condition: healthy", "condition"},
		{"  interval: 5s", "  interval: soon", "interval"},
	} {
		if !strings.Contains(string(data), tt.old) {
			t.Errorf("the file has no %q", tt.old)
			continue
		}
		file := filepath.Join(t.TempDir(), "docker-compose.yml")
		if err := os.WriteFile(file, []byte(strings.Replace(string(data), tt.old, tt.new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := load(t.Context(), []string{file}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("with %q the file is read: %v", tt.new, err)
		}
	}
}
