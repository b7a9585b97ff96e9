package a2a

// CloseIdle closes the connections that no run uses.
func (e *Executor) CloseIdle() { e.http.CloseIdleConnections() }
