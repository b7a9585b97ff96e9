package main

import (
	"context"
	"errors"
)

// This file is where commands meet the packages that do the work.

var errNotBuilt = errors.New("not built yet")

func runServe(ctx context.Context, app *App, cfg Config) error { return errNotBuilt }

func runDev(ctx context.Context, app *App, cfg Config) error { return errNotBuilt }

// openOperator opens the database at url for the commands of the operator.
func openOperator(ctx context.Context, url string) (operator, error) {
	return nil, errNotBuilt
}
