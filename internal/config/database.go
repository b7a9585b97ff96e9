package config

import (
	"strings"
	"time"
)

// Database says where tasks are stored.
type Database struct {
	DatabaseURL Secret `type:"setting" name:"database-url" secret:"yes"`
	DataDir     string `type:"setting" name:"data-dir" def:".a2ad"`
	PGBinDir    string `type:"setting" name:"pg-bindir"`
}

// Pool says how the server uses the database.
type Pool struct {
	DBPool           int           `type:"setting" name:"db-pool" def:"16" min:"4"`
	PoolTimeout      time.Duration `type:"setting" name:"pool-timeout" def:"5s" min:"10ms" hidden:""`
	ConnectTimeout   time.Duration `type:"setting" name:"connect-timeout" def:"2s" min:"10ms" hidden:""`
	TCPTimeout       time.Duration `type:"setting" name:"tcp-timeout" def:"5s" min:"1s" hidden:""`
	StatementTimeout time.Duration `type:"setting" name:"statement-timeout" def:"8s" min:"10ms" hidden:""`
	LockTimeout      time.Duration `type:"setting" name:"lock-timeout" def:"5s" min:"10ms" hidden:""`
	IdleTxTimeout    time.Duration `type:"setting" name:"idle-tx-timeout" def:"5s" min:"10ms" hidden:""`
	ListenerPing     time.Duration `type:"setting" name:"listener-ping" def:"5s" min:"10ms" hidden:""`
}

// Check finds a URL that is not one of PostgreSQL.
func (d *Database) Check() []Fault {
	const name = "A2AD_DATABASE_URL"
	switch dsn := d.DatabaseURL.Reveal(); {
	case dsn == "":
		return nil
	case !validDSN(dsn):
		return []Fault{{Name: name, Text: "not a PostgreSQL URL: write for example " + exampleDSN}}
	case ambiguousDSN(dsn):
		return []Fault{{Name: name, Text: "the user or the password has an @: write %40 in its place"}}
	}
	return nil
}

const exampleDSN = "postgres://a2ad:password@localhost:5432/a2ad"

// validDSN accepts URLs and the keyword/value form. The driver checks the details.
func validDSN(dsn string) bool {
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		return MaskDSN(dsn) != redacted
	}
	return !strings.Contains(dsn, "://") && strings.Contains(dsn, "=")
}

// ambiguousDSN reports whether a URL has more than one @ before its path. The driver ends the password at the first
// one, so the rest of the password would be part of the host, which errors name.
func ambiguousDSN(dsn string) bool {
	_, rest, isURL := strings.Cut(dsn, "://")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	return isURL && strings.Count(rest, "@") > 1
}
