package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
)

// play executes instructions until one of them returns.
func (p *program) play(ctx context.Context, list []instruction) (value any, returned bool, err error) {
	for i := range list {
		if value, returned, err = p.control(ctx, &list[i]); returned || err != nil {
			return value, returned, err
		}
	}
	return nil, false, nil
}

// control executes an instruction that directs the program, and leaves the others to call.
func (p *program) control(ctx context.Context, i *instruction) (value any, returned bool, err error) {
	switch {
	case i.Return != nil:
		if err := decode(i.Return, &value); err != nil {
			return nil, false, err
		}
		return p.value(value), true, nil
	case i.If != nil:
		if reflect.DeepEqual(p.value(i.If), i.Is) {
			return p.play(ctx, i.Then)
		}
		return p.play(ctx, i.Else)
	case i.Try != nil:
		value, returned, err = p.play(ctx, i.Try)
		text, caught := kindOf(err)
		if err == nil || caught != i.Catch {
			return value, returned, err
		}
		p.set("error", text)
		return p.play(ctx, i.Then)
	case i.Repeat > 0:
		for range i.Repeat {
			if value, returned, err := p.play(ctx, i.Do); returned || err != nil {
				return value, returned, err
			}
		}
		return nil, false, nil
	}
	value, err = p.call(ctx, i)
	if err == nil {
		p.set(i.As, value)
	}
	return nil, false, err
}

// kindOf returns the kind of an error that agents may handle, and its text without what languages add.
func kindOf(err error) (text, kind string) {
	var step *a2ad.StepError
	var call *a2ad.CallError
	var usage *a2ad.UsageError
	switch {
	case err == nil || errors.Is(err, a2ad.ErrStopped):
		return "", ""
	case errors.As(err, &step):
		return step.Text, "step"
	case errors.As(err, &call):
		return call.State + ": " + call.Text, "call"
	case errors.Is(err, a2ad.ErrTimeout):
		return "", "timeout"
	case errors.Is(err, a2ad.ErrFail):
		return err.Error(), "fail"
	case errors.As(err, &usage):
		return "", "usage"
	}
	return "", ""
}

// call calls the library once.
func (p *program) call(ctx context.Context, i *instruction) (any, error) {
	t := p.task
	switch {
	case i.Write != nil:
		return nil, p.write(ctx, i.To, *i.Write)
	case i.Artifact != "":
		return nil, p.artifact(ctx, i)
	case i.Status != nil:
		return nil, t.Status(ctx, p.text(*i.Status))
	case i.Step != "":
		return p.step(ctx, i)
	case i.Effect != "":
		return p.world.effect(ctx, i.Effect, t.IdempotencyKey(i.Effect))
	case i.Sleep != "":
		return nil, p.sleep(ctx, i.Sleep)
	case !i.SleepUntil.IsZero():
		return nil, t.SleepUntil(ctx, i.SleepUntil)
	case i.Signal != "":
		return a2ad.Signal[any](ctx, t, i.Signal, duration(i.Timeout))
	case i.Gather != nil:
		return p.gather(ctx, i.Gather)
	case i.Together != nil:
		return nil, p.together(ctx, i.Together)
	case i.IgnoreStop:
		select {} // for ever
	case i.Checkpoint != nil:
		return nil, t.Checkpoint(ctx, p.value(i.Checkpoint))
	case i.Usage != nil:
		return nil, t.Usage(ctx, a2ad.Usage{Model: *i.Usage, InputTokens: i.Tokens[0], OutputTokens: i.Tokens[1]})
	case i.Fail != nil:
		return nil, a2ad.Fail(p.text(*i.Fail))
	case i.Reject != nil:
		return nil, a2ad.Reject(p.text(*i.Reject))
	case i.Retry != nil:
		return nil, a2ad.Retry(*i.Retry, time.Duration(i.After*float64(time.Second)))
	case i.Crash != nil:
		return nil, errors.New(*i.Crash)
	}
	return p.talk(ctx, i)
}

// talk asks the client or another agent.
func (p *program) talk(ctx context.Context, i *instruction) (any, error) {
	t := p.task
	var options []a2ad.AskOption
	if i.Timeout != "" {
		options = append(options, a2ad.Within(duration(i.Timeout)))
	}
	switch {
	case i.Ask != nil && i.Schema != nil:
		v, err := a2ad.AskFor[booking](ctx, t, p.text(*i.Ask), options...)
		return map[string]any{"city": v.City, "days": v.Days}, err
	case i.Ask != nil:
		if i.Choices != nil {
			options = append(options, a2ad.Choices(i.Choices...))
		}
		return t.Ask(ctx, p.text(*i.Ask), options...)
	case i.AuthRequired != nil:
		m, err := t.AuthRequired(ctx, p.text(*i.AuthRequired), options...)
		if err != nil {
			return nil, err
		}
		return m.Text(), nil
	case i.Call != "":
		var options []a2ad.CallOption
		if i.Abandon {
			options = append(options, a2ad.Abandon())
		}
		r, err := t.Call(ctx, i.Call, a2ad.Text(p.text(i.Message)), options...)
		if err != nil {
			return nil, err
		}
		return r.Text(), nil
	}
	return nil, fmt.Errorf("the driver does not know the instruction %+v", *i)
}

// booking is the only type that cases ask for: in Go, a schema is a type.
type booking struct {
	City string `json:"city"`
	Days int    `json:"days"`
}

func (p *program) write(ctx context.Context, to, text string) error {
	if to == "" {
		return p.task.Write(ctx, p.text(text))
	}
	return p.task.Artifact(to).Write(ctx, p.text(text))
}

func (p *program) artifact(ctx context.Context, i *instruction) error {
	a := p.task.Artifact(i.Artifact)
	send := a.Send
	if i.Append {
		send = a.Append
	}
	switch {
	case i.File != nil:
		return send(ctx, a2ad.Part{Raw: []byte(*i.File), Filename: "file.txt", MediaType: "text/plain"})
	case i.Link != "":
		return a.Send(ctx, a2ad.Part{URL: i.Link})
	case i.Replace != nil:
		return a.Replace(ctx, p.text(*i.Replace))
	}
	if i.Append {
		return a.Append(ctx, a2ad.JSON(p.value(i.Data)))
	}
	return a.Data(ctx, p.value(i.Data))
}

// step does the instructions of a step, and returns what they return. Without any, the step is an effect of its name.
func (p *program) step(ctx context.Context, i *instruction) (any, error) {
	options := []a2ad.StepOption{a2ad.Retries(i.Retries)}
	if i.Input != nil {
		options = append(options, a2ad.Input(p.value(i.Input)))
	}
	if i.Backoff != "" {
		options = append(options, a2ad.Backoff(duration(i.Backoff)))
	}
	if i.Timeout != "" {
		options = append(options, a2ad.Timeout(duration(i.Timeout)))
	}
	return a2ad.Step(ctx, p.task, i.Step, func(ctx context.Context) (any, error) {
		if i.Do == nil {
			return p.world.effect(ctx, i.Step, p.task.IdempotencyKey(i.Step))
		}
		value, _, err := p.branch().play(ctx, i.Do)
		return value, err
	}, options...)
}

// sleep sleeps. A text that is no duration stands for a wrong argument, such as a duration of more than ten years.
func (p *program) sleep(ctx context.Context, text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		d = 11 * 365 * 24 * time.Hour
	}
	return p.task.Sleep(ctx, d)
}

// together runs programs at once, without the library. It ends with their first error.
func (p *program) together(ctx context.Context, programs [][]instruction) error {
	errs := make(chan error, len(programs))
	for _, list := range programs {
		branch := p.branch()
		go func() {
			_, _, err := branch.play(ctx, list)
			errs <- err
		}()
	}
	for range programs {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

func (p *program) gather(ctx context.Context, branches [][]instruction) (any, error) {
	results := make([]any, len(branches))
	work := make([]func(context.Context) error, len(branches))
	for n, list := range branches {
		work[n] = func(ctx context.Context) (err error) {
			results[n], _, err = p.branch().play(ctx, list)
			return err
		}
	}
	return results, p.task.Gather(ctx, work...)
}
