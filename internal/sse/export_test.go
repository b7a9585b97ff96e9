package sse

// Started reports whether the headers have been sent.
func (w *Writer) Started() bool { return w.started }
