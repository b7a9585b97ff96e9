package a2ad

import (
	"net/http"
	"testing"
)

func TestClientWithoutATransportGetsThatOfTheLibrary(t *testing.T) {
	t.Parallel()
	w := NewWorker(Options{Client: &http.Client{}})
	if own, ok := w.client.http.Transport.(*http.Transport); !ok || own.MaxIdleConnsPerHost != 1000 {
		t.Errorf("the transport is %+v", w.client.http.Transport)
	}
}
