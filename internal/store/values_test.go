package store_test

import (
	"fmt"
	"strings"

	"github.com/a2ad/a2ad/internal/store/storetest"
)

// values are arguments of statements by the names of their parameters, or those and the types, for one statement, those
// with a first word, or all. Other parameters get one of valuesOfType. $id is the task, $epoch the epoch of its run,
// $last its newest event, and $hook its webhook. $shared says whether the tenant shares its tasks.
var values = map[string]string{
	// whose
	"tenant": "acme", "tenants": "{acme}", "owner": "ann", "owners": "{ann}", "contextid": "talk", "shared": "$shared",
	"agent": "words", "agents": "{words}", "queue": "words", "queues": "{words}", "name": "words", "names": "{words}",
	"origin": storetest.WebhookOrigin, "origins": "{" + storetest.WebhookOrigin + "}", "configid": "hook",
	"messageid": "m", "key text": "h:k0", "keys": "{s}", "models": "{m}", "replica": "r1", "lanes": "{0}",
	// how many, and from where
	"max": "10", "batch": "10", "most": "0", "history": "1152921504606846976", "state smallint": "0",
	"after uuid": lowest, "first uuid": lowest, "firstid": lowest, "fromid": lowest, "aftertask": lowest,
	"last uuid": highest, "lastid": highest, "before uuid": highest, "beforeid": highest,
	"after bigint": "0", "after integer": "0", "afterepoch": "0", "before bigint": "1000000",
	"before integer": "1000000", "since": "-infinity", "floor": "-infinity", "floors": "{-infinity}",
	"beforeat": "infinity", "beforetime": "infinity", "until": "infinity", "older": "-1 hour", "keep": "-1 hour",
	"patience": "-1 hour", "seen": "{0}", "through": "1",
	// the run
	"epoch": "$epoch", "epochs": "{$epoch}", "afters": "{$last}", "lastseqs": "{$last}", "stepafters": "{1}",
	"seq bigint": "$last", "seqs integer[]": "{1}", "step": "1", "steps": "{1}",
	// webhooks
	"Push*.id": "$hook", "Push*.ids": "{$hook}", "Push*.pushid": "$hook", "Push*.epoch": "0", "Push*.epochs": "{0}",
	"Push*.seq bigint": "$last", "Push*.after": lowest, "PushReplay.after": "0",
	"PushesDelivered.seqs": "{$last}", "PushAttemptInsert.outcome": "failed", "PushAttemptInsert.trigger": "auto",
	"PushInsert.id": highest, "PushInsert.wireversion": "10", "PushInsert.configid": "another",
	"PushReplace.wireversion": "10",
	// what is written
	"EventAppend.asked": "{0}", "EventAppend.folds": "{false}", "EventAppend.waits": "{false}",
	"EventAppend.states": "{2}", "EventAppend.artifactids": `{""}`, "EventAppend.messagepositions": "{2}",
	"EventAppend.messagecounts": "{0}", "EventAppend.stepcounts": "{0}", "ImportEvents.seqs": "{1000000}",
	"ImportEvents.artifactids": `{""}`, "ImportEvents.states": "{2}", "ImportMessages.seqs": "{1000000}",
	"JobInsert.action": "cancel", "SchedulePut.paused": "false", "SchedulePut.overlap": "skip",
	"SchedulePut.timezone": "UTC", "StepsAppend.numbers": "{1}", "StepsAppend.keys": "{t}",
	"StepsAppend.errors": "{NULL}", "StepsAppend.childids": "{NULL}", "StepsRepeat.errors": "{NULL}",
	"StopBegin.kind": "agent", "StopEnd.kind": "agent", "TaskSubmit.ids": "{" + highest + "}",
	"TaskSubmit.parents": "{NULL}", "TaskSubmit.parentsteps": "{NULL}", "TaskImport.ids": "{" + highest + "}",
	"TaskCancel.folds": "false", "TaskCountForCaller.most": "1000", "TicksAdd.outcome": "missed",
	"InspectRole.role": "a2a_worker", "SessionSet.names": "{role}", "SessionSet.vals": "{a2a_worker}",
	"StatementsMayTake.ms": "1000",
}

const (
	lowest  = "00000000-0000-0000-0000-000000000000"
	highest = "ffffffff-ffff-ffff-ffff-ffffffffffff"
)

var valuesOfType = map[string]string{
	"uuid": "$id", "text": "x", "bytea": `\x` + strings.Repeat("01", 32), "json": "{}", "jsonb": "{}",
	"boolean": "true", "smallint": "1", "integer": "1", "bigint": "1", "real": "1", "double precision": "1",
	"interval": "1 hour", "timestamp with time zone": "2026-01-01T00:00:00Z", "date": "2026-01-01",
}

// arguments returns the arguments of a statement for a task, as EXECUTE reads them.
func (g *growth) arguments(who, name string, params, types []string, p probe) string {
	if len(params) != len(types) {
		g.T.Fatalf("%s has the parameters %v of the types %v", name, params, types)
	}
	fill := strings.NewReplacer("$id", p.id.String(), "$epoch", p.epoch, "$hook", p.webhook,
		"$shared", fmt.Sprint(who == "a tenant"), "$last", p.lastSeq, "'", "''")
	var args []string
	group := name[:min(4, len(name))] + "*."
	for i, typ := range types {
		param := strings.ToLower(params[i])
		keys := []string{name + "." + param, group + param + " " + typ, group + param,
			param + " " + typ, param}
		var v string
		var ok bool
		for _, key := range keys {
			if v, ok = values[key]; ok {
				g.used[key] = true
				break
			}
		}
		if elem, array := strings.CutSuffix(typ, "[]"); !ok {
			if v, ok = valuesOfType[elem]; !ok {
				g.T.Fatalf("%s: there is no value of type %s", name, typ)
			}
			if array {
				v = `{"` + strings.ReplaceAll(v, `\`, `\\`) + `"}`
			}
		}
		args = append(args, "'"+fill.Replace(v)+"'")
	}
	if args == nil {
		return ""
	}
	return "(" + strings.Join(args, ", ") + ")"
}
