package agents

import "github.com/a2ad/a2ad/internal/a2a"

// Demo returns the agents that `a2ad dev --demo` adds to those of Builtin. All but orders play scripts. Workers claim
// the tasks of orders over HTTP.
func Demo() []File {
	script := func(name, description string, schedules ...a2a.Schedule) File {
		return File{Path: "demo", Executor: Script{}, Agent: a2a.Agent{
			Name: name, Card: a2a.Card{Description: description}, Schedules: schedules,
		}}
	}
	files := []File{
		{Path: "demo", Executor: Pull{}, Agent: a2a.Agent{Name: "orders", Card: a2a.Card{
			Description: "Plans the delivery of large orders. It asks other agents, and a person about " +
				"special prices.",
		}}},
		script("refunds", "Decides about refunds, and asks a person when the amount is large."),
		script("research", "Answers questions from the knowledge base."),
		script("translate", "Translates letters of customers."),
		script("reports", "Writes the report of the day.", a2a.Schedule{
			Name: "every-five-minutes", Cron: "*/5 * * * *", Timezone: "UTC", Tenant: "acme", Owner: "scheduler",
			Message: a2a.Message{Role: a2a.RoleUser, Parts: []a2a.Part{
				{Kind: a2a.PartText, Text: "Write the report of the last five minutes."},
				{Kind: a2a.PartData, Data: a2a.Raw(demoReport)},
			}},
		}),
	}
	for i := range files {
		fill(&files[i])
	}
	return files
}

// demoReport is what the schedule lets the agent reports do.
const demoReport = `{"script":[{"op":"status","text":"adding up the orders"},{"op":"sleep","ms":800},` +
	`{"op":"artifact","id":"report","text":"## Report\n\n| | orders | refunds |\n|---|---:|---:|\n` +
	`| today | 212 | 9 |\n| yesterday | 198 | 11 |\n\nRefunds are **down by 18 %**."}]}`
