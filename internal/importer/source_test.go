package importer_test

import (
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/importer"
)

// The name of a source may have a password, and its error is shown and logged.
func TestOpenNeverShowsThePassword(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"postgres://ann:hunter2@127.0.0.1:1/tasks?sslmode=disable", // nothing listens there
		"postgres://ann:hunter2@127.0.0.1:1/tasks?sslmode=perhaps",
		"postgresql+asyncpg://ann:hunter2@127.0.0.1:port/tasks",
		"postgres://127.0.0.1:1/tasks?user=ann&password=hunter2&connect_timeout=soon",
		"postgres://ann:%zz-hunter2@127.0.0.1:1/tasks",
		"postgres://ann:hunter2%@127.0.0.1:1/tasks",
		"postgres://ann:a#hunter2@127.0.0.1:1/tasks",
		"postgres://ann:a/hunter2@127.0.0.1:1/tasks",
		"postgres://ann:a?hunter2@127.0.0.1:1/tasks",
		"postgres://ann:a[hunter2@127.0.0.1:1/tasks",
		"postgres://ann:a hunter2@127.0.0.1:1/tasks",
		"postgres://ann:a@hunter2@127.0.0.1:1/tasks",
		"postgres://ann:a@hunter2@127.0.0.1:1/tasks?sslmode=disable",
		"postgres://ann:a@127.0.0.1:1,hunter2@127.0.0.1:2/tasks",
		"postgres:ann:hunter2@127.0.0.1:1/tasks",
		"postgres:host=127.0.0.1 password=hunter2",
		"postgres:host=127.0.0.1 password = hunter2 port=x",
		"postgres:host=127.0.0.1 sslpassword=hunter2 port=x",
		"host=127.0.0.1 user=ann password=hunter2",
		"host=127.0.0.1 user=ann password=a:hunter2",
		"host=127.0.0.1 user=ann password=hunter2:b",
		"ann/hunter2@127.0.0.1",
		"mysql://ann:hunter2@127.0.0.1/tasks",
	} {
		source, err := importer.Open(t.Context(), name, importer.Tables{})
		if err == nil {
			source.Close()
			t.Errorf("%s was opened", name)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error of %s is %q", name, err)
		}
	}
}
