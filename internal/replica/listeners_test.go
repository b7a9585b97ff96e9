package replica

import (
	"net"
	"strings"
	"testing"

	"github.com/a2ad/a2ad/internal/config"
)

func TestBusyPortErrorSaysWhatToDo(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	at := busy.Addr().String()
	_, err = listen("A2AD_ADMIN_LISTEN", config.Listen(at))
	want := "A2AD_ADMIN_LISTEN: another process listens on " + at + ": stop it, or choose another port " +
		"with --admin-listen HOST:PORT, or set A2AD_ADMIN_LISTEN"
	if err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
	if _, err = listen("A2AD_LISTEN", "nowhere.invalid:1"); err == nil ||
		!strings.HasPrefix(err.Error(), "A2AD_LISTEN: ") {
		t.Errorf("the error is %v", err)
	}
}
