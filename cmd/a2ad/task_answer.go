package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/a2ad/a2ad/internal/admin"
	"github.com/a2ad/a2ad/internal/rawjson"
	"github.com/a2ad/a2ad/internal/term"
)

// TaskAnswerCmd is `a2ad task answer`.
type TaskAnswerCmd struct {
	ID     string    `arg:"" help:"Id of the task."`
	Text   string    `arg:"" optional:"" help:"The answer."`
	Data   string    `placeholder:"JSON" help:"The answer as JSON, for a question with a schema."`
	Key    string    `placeholder:"KEY" help:"Idempotency key: the same answer with the same key is stored once."`
	Asked  time.Time `placeholder:"TIME" help:"Answer only the question of then: updatedAt in the JSON of task show."`
	Reason string    `placeholder:"TEXT" help:"Why, for the audit log."`
	Service
	Output
}

// Help is shown below the usage line.
func (*TaskAnswerCmd) Help() string {
	return `Answers in place of the owner of the task. The task continues with the answer. ` +
		`"a2ad task show" shows the question. The exit code is 1 if the task does not wait for an answer, or if the ` +
		`answer does not fit the question.`
}

// Validate is called by the parser.
func (c *TaskAnswerCmd) Validate() error {
	if c.Text == "" && c.Data == "" {
		return errors.New("give an answer: TEXT, --data, or both")
	}
	if c.Data != "" && rawjson.Check([]byte(c.Data), maxValueDepth) != nil {
		return errors.New("--data must be JSON, such as '{\"approved\":true}'")
	}
	return nil
}

// Run answers.
func (c *TaskAnswerCmd) Run(ctx context.Context, app *App) error {
	return c.withAdmin(ctx, app, func(api *admin.Client) error {
		return onTask(c.ID, func() error {
			answer := admin.Answer{Why: admin.Why{Reason: c.Reason}, Text: c.Text, Key: c.Key, Asked: c.Asked}
			if c.Data != "" {
				answer.Data = []byte(c.Data)
			}
			var row taskRow
			if err := api.Post(ctx, taskPath(c.ID, "answer"), answer, &row); err != nil {
				return err
			}
			if c.json() {
				return term.JSON(app.Stdout, row)
			}
			_, err := fmt.Fprintf(app.Stdout, "%s answered\n", row.ID) // its state changes at once
			return err
		})
	})
}
