package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/a2ad/a2ad/sdk/go/a2ad"
)

// instruction is one call of the library. The member that is its verb is set; the others are its arguments.
type instruction struct {
	Write        *string         `json:"write"`
	Artifact     string          `json:"artifact"`
	Status       *string         `json:"status"`
	Step         string          `json:"step"`
	Effect       string          `json:"effect"`
	Ask          *string         `json:"ask"`
	AuthRequired *string         `json:"authRequired"`
	Sleep        string          `json:"sleep"`
	SleepUntil   time.Time       `json:"sleepUntil"`
	Signal       string          `json:"signal"`
	Call         string          `json:"call"`
	Gather       [][]instruction `json:"gather"`
	Together     [][]instruction `json:"together"`
	IgnoreStop   bool            `json:"ignoreStop"`
	Checkpoint   any             `json:"checkpoint"`
	Usage        *string         `json:"usage"` // the model
	If           any             `json:"if"`
	Try          []instruction   `json:"try"`
	Fail         *string         `json:"fail"`
	Reject       *string         `json:"reject"`
	Retry        *string         `json:"retry"`
	Crash        *string         `json:"crash"`
	Repeat       int             `json:"repeat"`
	Return       json.RawMessage `json:"return"`

	As      string          `json:"as"` // the variable for the result
	To      string          `json:"to"` // the artifact
	Is      any             `json:"is"`
	Then    []instruction   `json:"then"`
	Else    []instruction   `json:"else"`
	Catch   string          `json:"catch"`
	Do      []instruction   `json:"do"`
	Input   any             `json:"input"`
	Retries int             `json:"retries"`
	Backoff string          `json:"backoff"`
	Timeout string          `json:"timeout"`
	Choices []string        `json:"choices"`
	Schema  json.RawMessage `json:"schema"`
	Message string          `json:"message"`
	Abandon bool            `json:"abandon"`
	Data    any             `json:"data"`
	File    *string         `json:"file"`
	Link    string          `json:"link"`
	Replace *string         `json:"replace"`
	After   float64         `json:"after"`  // seconds
	Tokens  [2]int64        `json:"tokens"` // of the input and the output
	Append  bool            `json:"append"` // to the artifact
}

// program is one run of an agent.
type program struct {
	task  *a2ad.Task
	world world
	vars  map[string]any
}

func begin(t *a2ad.Task, w world) (*program, error) {
	var raw json.RawMessage
	var saved any
	found, err := t.Saved(&raw)
	if err == nil && found {
		err = decode(raw, &saved)
	}
	if err != nil {
		return nil, err
	}
	all := t.Messages()
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = all[i].Text()
	}
	return &program{t, w, map[string]any{
		"message": t.Message().Text(), "messages": strings.Join(texts, ","), "saved": saved,
		"attempt": number(t.Attempt()), "number": number(t.MessageNumber()),
	}}, nil
}

// decode reads JSON, and keeps numbers as they are written.
func decode(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(v)
}

// number returns a number as those of the case are.
func number(n int) json.Number { return json.Number(strconv.Itoa(n)) }

// branch returns the same program with variables of its own.
func (p *program) branch() *program { return &program{p.task, p.world, maps.Clone(p.vars)} }

func (p *program) set(name string, value any) {
	if name != "" {
		p.vars[name] = value
	}
}

var variable = regexp.MustCompile(`\{(\w+)\}`)

// text replaces the variables of a text.
func (p *program) text(s string) string {
	return variable.ReplaceAllStringFunc(s, func(name string) string {
		value := p.vars[name[1:len(name)-1]]
		if text, ok := value.(string); ok {
			return text
		}
		data, _ := json.Marshal(value) // it was JSON
		return string(data)
	})
}

// value replaces the variables of a value. A text that is one variable alone becomes its value.
func (p *program) value(v any) any {
	switch v := v.(type) {
	case string:
		if m := variable.FindString(v); m == v && m != "" {
			return p.vars[v[1:len(v)-1]]
		}
		return p.text(v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = p.value(v[i])
		}
		return list
	case map[string]any:
		object := make(map[string]any, len(v))
		for name := range v {
			object[name] = p.value(v[name])
		}
		return object
	}
	return v
}

func duration(s string) time.Duration {
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(fmt.Sprintf("the case has a wrong duration: %v", err))
	}
	return d
}
