package throttle

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
)

// Error says that a limit is reached, and when to come back. It unwraps to an *a2a.Error with
// CodeRateLimited, which is what the client sees.
type Error struct {
	bucket string
	rate   Rate
	wait   time.Duration
	err    *a2a.Error
}

func (e *Error) Error() string { return e.err.Error() }

// Unwrap returns the error that the protocol shows.
func (e *Error) Unwrap() error { return e.err }

// SetHeader adds the limit, and when it has room again, to the header of an answer. Only refusals
// carry these headers: in other answers they would show one client what the owner's other clients do.
func (e *Error) SetHeader(h http.Header) {
	wait, burst := strconv.Itoa(seconds(e.wait.Seconds())), max(e.rate.Burst, 1)
	window := seconds(float64(burst) / e.rate.PerSecond)
	h.Set("Retry-After", wait)
	h.Set("RateLimit-Policy", `"`+e.bucket+`";q=`+strconv.Itoa(burst)+`;w=`+strconv.Itoa(window))
	h.Set("RateLimit", `"`+e.bucket+`";r=0;t=`+wait)
}

// seconds rounds up to whole seconds, and to at least one.
func seconds(s float64) int { return int(max(1, math.Ceil(min(s, 1<<31)))) }
