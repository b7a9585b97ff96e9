package admin_test

import (
	"testing"

	"github.com/a2ad/a2ad/internal/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }
