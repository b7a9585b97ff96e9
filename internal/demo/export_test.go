package demo

import "encoding/json"

// AgentsUsed returns the agents that tasks of the demo are for.
func AgentsUsed() (names []string) {
	for _, s := range append(scenes[:len(scenes):len(scenes)], usual...) {
		names = append(names, s.agent)
	}
	return names
}

// Scripts returns all scripts as agents get them.
func Scripts() (list []string) {
	for _, s := range append(scenes[:len(scenes):len(scenes)], usual...) {
		if s.script != "" {
			list = append(list, `{"script":[`+fill(s.script, 4711)+`]}`)
		}
	}
	return list
}

// Plan returns what a run reports, as the worker sends it. The run is JSON as a claim has it.
func Plan(run string) (events string, err error) {
	var r claimed
	if err := json.Unmarshal([]byte(run), &r); err != nil {
		return "", err
	}
	out, err := json.Marshal(plan(&r))
	return string(out), err
}
