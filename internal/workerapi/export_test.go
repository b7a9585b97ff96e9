package workerapi

// ForgetRuns makes the next report of each run renew its lease first.
func (a *API) ForgetRuns() { a.held.forget() }
