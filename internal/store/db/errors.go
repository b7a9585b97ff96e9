package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/a2ad/a2ad/internal/a2a"
)

// ErrLeaseLost says that the worker's lease is lost: the task was canceled, or another worker has it. Nothing was
// written.
var ErrLeaseLost = errors.New("lease lost")

// What PostgreSQL refuses, by SQLSTATE. An error of another class than those named here and in lost is a fault of
// a2ad or of the database. It fails every caller that shares the statement, and no other.
//
//	22 54        a value that PostgreSQL cannot hold        of one item; for an event, its agent is told
//	23           a constraint of a table is violated        of one item, and a fault of a2ad
//	55P03 57014  a lock, or a statement, took too long      perhaps of one item; for callers CodeInternal
//	40001 40P01  serialization failure, deadlock            perhaps of one item; repeated at once (lost)
//	08 53 57     connection, resources, shutdown            of all items; repeated at once (lost)
//	25006        read-only, as in a failover                of all items; repeated at once unless known (demotion)
//	58           disk errors                                of all items; CodeUnavailable
//
// Callers are not asked to repeat what took too long: it may take as long again. An agent is charged for the first line
// alone, and for a task that takes too long to be read (Inputs): a run that ends with CodeUnavailable is given back and
// costs no attempt. What is not listed, a fault of ours or a corrupt table, counts as an attempt, so that it cannot go
// on for ever.

// DueToOneItem reports whether a statement with many items may have been refused because of one of them, so that the
// others succeed without it. Nothing was written.
func DueToOneItem(err error) bool {
	return IsCode(err, "22", "23", "54", "40001", "40P01") || Blocked(err)
}

// Blocked reports whether a statement was given up because it took too long, or waited for too long, for what others
// have locked.
func Blocked(err error) bool {
	return IsCode(err, "55P03", "57014") || errors.Is(err, errBrowsedTooLong)
}

// UnavailableToRun gives an error of a request of a run the code that its worker, local or remote, may act on. A
// blocked statement is unavailable, too: that is not the agent's fault.
func UnavailableToRun(err error) error {
	if Blocked(err) {
		return a2a.Error{Code: a2a.CodeUnavailable, Message: "the database took too long"}.With(err)
	}
	return Unavailable(err)
}

// ConnectionLost reports whether err came from the connection and not from the statement: whether
// the statement took effect is then unknown.
func ConnectionLost(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, pgx.ErrNoRows) ||
		errors.Is(err, errBrowsedTooLong) {
		return false
	}
	var e *a2a.Error
	if errors.As(err, &e) {
		return false
	}
	var ce *pgconn.ConnectError
	if errors.As(err, &ce) {
		return true // there was no connection, whatever reason PostgreSQL gives
	}
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		switch pe.Code[:2] {
		case "57": // operator intervention: shutdown, crash, terminated backend
			return pe.Code != "57014"
		case "08", "53": // connection, insufficient resources
			return true
		}
		return pe.Code == "25P03" || pe.Code == "40P01" || pe.Code == "40001"
	}
	return true
}

// Unavailable gives CodeUnavailable to an error of the connection, or of a PostgreSQL that is read-only for a while,
// for example during a failover.
func Unavailable(err error) error {
	if a2a.CodeOf(err) == a2a.CodeUnavailable {
		return err
	}
	if IsCode(err, "25006") {
		const text = "the database accepts no changes: it is a standby, or read-only"
		return a2a.Error{Code: a2a.CodeUnavailable, Message: text}.With(err)
	}
	if ConnectionLost(err) || IsCode(err, "58") {
		return a2a.Error{Code: a2a.CodeUnavailable, Message: "the database is not available"}.With(err)
	}
	return err
}

// IsCode reports whether err is an error of PostgreSQL with one of the codes, or of one of the classes where a code has
// two digits.
func IsCode(err error, codes ...string) bool {
	var pe *pgconn.PgError
	if !errors.As(err, &pe) {
		return false
	}
	for _, c := range codes {
		if pe.Code == c || len(c) == 2 && pe.Code[:2] == c {
			return true
		}
	}
	return false
}

// ErrUnusable says that the database cannot be used now, though the settings may be right: it is unreachable, refuses
// the login, or has another schema.
var ErrUnusable = errors.New("the database cannot be used now")

// unusable marks an error as ErrUnusable, and leaves its text.
type unusable struct{ error }

// MarkUnusable marks an error as ErrUnusable. Its text stays.
func MarkUnusable(err error) error { return unusable{err} }

func (e unusable) Unwrap() error        { return e.error }
func (e unusable) Is(target error) bool { return target == ErrUnusable }

// badURL is the error of a URL that cannot be read.
type badURL struct{ error }

func (e badURL) Error() string { return "parse the database URL: " + e.error.Error() }
func (e badURL) Unwrap() error { return e.error }

// opened is the error of Open.
func opened(err error) error {
	var url badURL
	if !errors.Is(err, ErrLends) && !errors.As(err, &url) {
		err = unusable{err}
	}
	return fmt.Errorf("connect: %w", err)
}

// Redact removes what a parse error quotes, because the URL may have a password. The name of a file in the URL, for
// example a certificate, is no secret.
func Redact(err error) error {
	var pe *pgconn.ParseConfigError
	if !errors.As(err, &pe) {
		return err
	}
	var file *fs.PathError
	if errors.As(err, &file) {
		return file
	}
	return errors.New("not a PostgreSQL connection string")
}
