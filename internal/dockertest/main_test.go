package dockertest_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("A2AD_TEST_DOCKER") == "" {
		fmt.Println("left out: these tests need a Docker daemon of their own (make docker-test, make docker-ha-test)")
		return
	}
	goleak.VerifyTestMain(m)
}
