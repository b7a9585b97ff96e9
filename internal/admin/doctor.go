package admin

import (
	"context"
	"time"

	"github.com/a2ad/a2ad/internal/a2a"
)

// DoctorQuery says what to check.
type DoctorQuery struct {
	Offline bool `json:"offline,omitempty" doc:"Do not call the listeners and the public URL of the server."`
}

// DoctorReport is what the checks of an installation have found.
type DoctorReport struct {
	Findings []Finding `json:"findings" doc:"In the order of the checks."`
}

// Finding is the result of one check. Its JSON does not change silently.
type Finding struct {
	Check string `json:"check"`
	Level string `json:"level" doc:"ok, note, warning or fault."`
	Text  string `json:"text"`
	Fix   string `json:"fix,omitempty" doc:"What to change, and how."`
}

// doctorTimeout bounds the checks of an installation.
const doctorTimeout = 30 * time.Second

// runDoctor serves GET /doctor.
func (a *API) runDoctor(ctx context.Context, r *request) (any, error) {
	if err := r.mustBeForAllAgents("the checks are"); err != nil {
		return nil, err
	}
	if a.cfg.Doctor == nil {
		return nil, a2a.Errorf(a2a.CodeUnavailable, "this server does not check its installation")
	}
	if !a.checking.TryLock() {
		return nil, a2a.Errorf(a2a.CodeUnavailable, "this server is checking its installation already")
	}
	defer a.checking.Unlock()
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	q := r.query.(*DoctorQuery) //nolint:forcetypeassert // the route says so
	return DoctorReport{append([]Finding{}, a.cfg.Doctor(ctx, q.Offline)...)}, nil
}
