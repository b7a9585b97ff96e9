package main

type SendCmd struct{ ClientGroup }

func (c *SendCmd) Run(app *App) error { return errNotBuilt }

type TaskCmd struct{}

func (c *TaskCmd) Run(app *App) error { return errNotBuilt }

type APIKeyCmd struct{}

func (c *APIKeyCmd) Run(app *App) error { return errNotBuilt }

type MigrateCmd struct{}

func (c *MigrateCmd) Run(app *App) error { return errNotBuilt }

type AgentCmd struct{}

func (c *AgentCmd) Run(app *App) error { return errNotBuilt }
