package replica

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"

	"github.com/a2ad/a2ad/internal/a2a"
	"github.com/a2ad/a2ad/internal/config"
)

// explaining adds to errors in the log the cause that clients do not see. Nearly all lines have no error
// and pass unchanged: a ReplaceAttr would be called for each value of each line.
//
// It lowers a warning to debug if its own context ended and was the reason. A server that stops ends what it does, and
// nobody has to act on that.
type explaining struct{ slog.Handler }

// Handle writes a line.
func (h explaining) Handle(ctx context.Context, r slog.Record) error {
	failed, ended := false, false
	r.Attrs(func(a slog.Attr) bool {
		failed = failed || hasError(a)
		ended = ended || endedWith(ctx, a)
		return true
	})
	if !failed {
		return h.Handler.Handle(ctx, r)
	}
	level := r.Level
	if ended && level == slog.LevelWarn {
		if level = slog.LevelDebug; !h.Enabled(ctx, level) {
			return nil
		}
	}
	out := slog.NewRecord(r.Time, level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(explained(a))
		return true
	})
	return h.Handler.Handle(ctx, out)
}

// WithAttrs returns a handler that adds these to its lines.
func (h explaining) WithAttrs(attrs []slog.Attr) slog.Handler {
	attrs = slices.Clone(attrs)
	for i, a := range attrs {
		attrs[i] = explained(a)
	}
	return explaining{h.Handler.WithAttrs(attrs)}
}

// WithGroup returns a handler that puts later attributes into a group.
func (h explaining) WithGroup(name string) slog.Handler {
	return explaining{h.Handler.WithGroup(name)}
}

func hasError(a slog.Attr) bool {
	switch a.Value.Kind() {
	case slog.KindAny:
		_, is := a.Value.Any().(error)
		return is
	case slog.KindGroup:
		return slices.ContainsFunc(a.Value.Group(), hasError)
	}
	return false
}

// endedWith reports whether the attribute is an error that the end of ctx explains.
func endedWith(ctx context.Context, a slog.Attr) bool {
	if ctx.Err() == nil || a.Value.Kind() != slog.KindAny {
		return false
	}
	err, is := a.Value.Any().(error)
	return is && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx)))
}

func explained(a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(a2a.Explain(err))
		}
	case slog.KindGroup:
		group := slices.Clone(a.Value.Group())
		for i, in := range group {
			group[i] = explained(in)
		}
		a.Value = slog.GroupValue(group...)
	}
	return a
}

// NewLogger returns the log of a server. It belongs on stderr: stdout is for what people asked for.
func NewLogger(l config.Logs, to io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: l.LogLevel}
	if l.LogFormat == "text" {
		return slog.New(explaining{slog.NewTextHandler(to, opts)})
	}
	return slog.New(explaining{slog.NewJSONHandler(to, opts)})
}
