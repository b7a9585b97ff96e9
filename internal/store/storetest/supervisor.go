package storetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/a2ad/a2ad/internal/devpg"
)

const (
	// image has the major version of docker-compose.yml.
	image = "postgres:17"

	// linger is how long the server waits for another user: between two packages of a run, go compiles the second.
	linger = 2 * time.Second

	dockerCheckLimit = 3 * time.Second
	stopLimit        = 5 * time.Minute
	imageLimit       = time.Minute
	portLimit        = 5 * time.Second
)

// serverParams suit many short databases: a vacuum rarely blocks the copy of a template, the pools of all packages fit,
// and the log does not grow in memory.
var serverParams = map[string]string{
	"autovacuum_naptime": "60s",
	"max_connections":    "400",
	"max_wal_size":       "256MB",
}

// running is a server that the supervisor has started.
type running struct {
	url    string
	exited <-chan struct{} // nil: not known
	stop   func(context.Context) error
}

// supervise runs the server of dir until its last user has ended, and returns the exit code. It writes errors to
// stderr: that is the log which a user shows.
func supervise(dir string) int {
	ctx, cancel := context.WithTimeout(context.Background(), setUpLimit)
	defer cancel()
	srv, err := open(ctx, dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	alone, err := serve(dir, srv)
	if alone != nil {
		defer alone.Close() // no process joins before the server has stopped
	}
	ctx, cancel = context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	if err := errors.Join(err, srv.stop(ctx)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// serve waits for the last user to end, and returns the lock that keeps new users out.
func serve(dir string, srv running) (*os.File, error) {
	path := filepath.Join(dir, urlFile)
	if err := os.WriteFile(path, []byte(srv.url), 0o600); err != nil {
		return nil, fmt.Errorf("write server URL: %w", err)
	}
	fmt.Println(srv.url)
	if err := os.Stdout.Close(); err != nil {
		return nil, fmt.Errorf("report server URL: %w", err)
	}
	alone, err := lastUserGone(dir, srv.exited)
	if alone == nil {
		return nil, err
	}
	return alone, os.Remove(path)
}

// lastUserGone waits until it has the exclusive lock and no user came during linger. It returns a nil file when the
// server ended first. Then the supervisor must end, too: its lock on the directory would keep the next one out.
func lastUserGone(dir string, exited <-chan struct{}) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, usersLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	tick := time.NewTicker(5 * lockPollEvery)
	defer tick.Stop()
	var idleSince time.Time
	for {
		select {
		case <-exited:
			return nil, f.Close()
		case now := <-tick.C:
			err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
			switch {
			case errors.Is(err, syscall.EWOULDBLOCK), errors.Is(err, syscall.EINTR):
				idleSince = time.Time{}
				continue
			case err != nil:
				return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
			case idleSince.IsZero():
				idleSince = now
			case now.Sub(idleSince) >= linger:
				return f, nil
			}
			if err := syscall.Flock(int(f.Fd()), syscall.LOCK_UN); err != nil {
				return nil, errors.Join(fmt.Errorf("unlock %s: %w", f.Name(), err), f.Close())
			}
		}
	}
}

// open starts the PostgreSQL in A2AD_PG_BINDIR. Without that it tries Docker, then an installed PostgreSQL. If Docker
// answers but cannot run the image, for example without a network, an installed PostgreSQL is good enough, unless
// A2AD_TEST_CONTAINER is set.
func open(ctx context.Context, dir string) (running, error) {
	var dockerErr error
	if os.Getenv("A2AD_PG_BINDIR") == "" && dockerAnswers(ctx) {
		srv, err := openContainer(ctx)
		if err == nil {
			return srv, nil
		}
		dockerErr = fmt.Errorf("run %s by Docker: %w", image, err)
	}
	if os.Getenv("A2AD_TEST_CONTAINER") != "" {
		return running{}, errors.Join(errors.New("A2AD_TEST_CONTAINER: the tests must use a container"), dockerErr)
	}
	cluster, err := clusterDir(dir)
	if err != nil {
		return running{}, err
	}
	srv, err := devpg.Start(ctx, devpg.Config{
		Dir:       filepath.Join(cluster, "pg"),
		BinDir:    os.Getenv("A2AD_PG_BINDIR"),
		Throwaway: true,
		Params:    serverParams,
	})
	if err != nil {
		return running{},
			errors.Join(dockerErr, err,
				errors.New("or set A2AD_TEST_DATABASE_URL to a server where tests may create databases"))
	}
	if dockerErr != nil {
		fmt.Fprintf(os.Stderr, "the tests use the PostgreSQL of this machine: %s (if it is there, "+
			"TESTCONTAINERS_RYUK_DISABLED=true or TESTCONTAINERS_HOST_OVERRIDE may help)\n",
			strings.Join(strings.Fields(dockerErr.Error()), " "))
	}
	stop := func(ctx context.Context) error {
		if err := srv.Stop(ctx); err != nil || cluster == dir {
			return err
		}
		return os.Remove(cluster)
	}
	return running{url: srv.URL("postgres"), exited: srv.Exited(), stop: stop}, nil
}

// dockerAnswers asks the daemon: the docker command may be installed without it.
func dockerAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, dockerCheckLimit)
	defer cancel()
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return false
	}
	defer provider.Close()
	return provider.Health(ctx) == nil
}

func openContainer(ctx context.Context) (running, error) {
	args := []string{"postgres", "-c", "fsync=off", "-c", "full_page_writes=off"}
	for name, value := range serverParams {
		args = append(args, "-c", name+"="+value)
	}
	c, err := postgres.Run(ctx, image,
		postgres.WithUsername("a2ad"), postgres.WithPassword("a2ad"), postgres.WithDatabase("postgres"),
		testcontainers.WithCmd(args...), testcontainers.WithWaitStrategy(
			// The first time, it initializes its directory. Once it is ready, its port answers at once, or never: for
			// example in a container that has no way to the network of the new one.
			wait.ForLog("database system is ready to accept connections").WithOccurrence(2).
				WithStartupTimeout(imageLimit),
			wait.ForListeningPort("5432/tcp").WithStartupTimeout(portLimit),
		))
	stop := func(ctx context.Context) error {
		return testcontainers.TerminateContainer(c, testcontainers.StopContext(ctx))
	}
	if err != nil {
		return running{}, errors.Join(err, stop(context.WithoutCancel(ctx)))
	}
	u, err := c.ConnectionString(ctx, "sslmode=disable")
	if err != nil {
		return running{}, errors.Join(err, stop(context.WithoutCancel(ctx)))
	}
	return running{url: u, stop: stop}, nil
}
