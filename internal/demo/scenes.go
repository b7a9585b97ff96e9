package demo

import (
	"strconv"
	"strings"
)

// destination has no server on most machines: it is the port of the discard protocol.
const destination = "http://127.0.0.1:9"

// Why tasks of the demo fail.
const (
	gatewayDown = `payment gateway answered 503 for order #`
	noProduct   = `no product has the number \"A-#\"`
)

// scenes are the tasks that stand out. A # is replaced by the number of an order.
var scenes = []scene{
	{agent: "refunds", text: "Refund order #: it never arrived.", times: 4,
		script: `{"op":"status","text":"checking order #"},` +
			`{"op":"fail","text":"` + gatewayDown + `"}`},
	{agent: "research", text: "Which size does A-# have?", times: 3,
		script: `{"op":"fail","text":"` + noProduct + `"}`},
	{agent: "refunds", text: "The parcel of order # was damaged. I want my money back.", times: 3,
		script: `{"op":"artifact","id":"letter","text":"` + letter + `"},` +
			`{"op":"input","text":"Refund 129 EUR for order #?"},` +
			`{"op":"complete","text":"The refund is on its way."}`},
	{agent: "translate", text: "Translate the contract of order # into French.",
		script: `{"op":"auth","text":"Sign in to the archive, so that I can read the contract of order #."},` +
			`{"op":"complete"}`},
	{agent: "orders", text: "Approve a discount of 20 % for order #."},
	{agent: "orders", text: "Change the delivery address of order #."},
	{agent: "orders", text: "Plan the delivery of order #.", times: 2},
	{agent: "research", text: "Read all 340 pages of the manual of A-#.",
		script: `{"op":"status","text":"reading page 117 of 340"},{"op":"hang"}`},
	{agent: "reports", text: "Tell billing about order #.", times: 3, webhook: destination + "/hooks/billing",
		script: `{"op":"artifact","id":"invoice","text":"Invoice of order #: 89.90 EUR"},{"op":"complete"}`},
}

// usual are the tasks that come all the time.
var usual = []scene{
	{agent: "refunds", text: "Where is the refund of order #?",
		script: `{"op":"status","text":"looking up order #"},{"op":"sleep","ms":1200},` +
			`{"op":"artifact","id":"answer","text":"The refund of order **#** was paid on Monday."}`},
	{agent: "research", text: "Is A-# waterproof?",
		script: `{"op":"sleep","ms":700},{"op":"artifact","id":"answer","text":"Yes. See *Care*, page 4."}`},
	{agent: "research", text: "Compare A-# with A-1001.",
		script: `{"op":"status","text":"reading both pages"},{"op":"sleep","ms":2500},{"op":"artifact","id":"table",` +
			`"text":"| | A-# | A-1001 |\n|---|---|---|\n| weight | 310 g | 290 g |\n` +
			`| warranty | 3 years | 2 years |"}`},
	{agent: "translate", text: "Translate this letter into German.",
		script: `{"op":"sleep","ms":900},{"op":"artifact","id":"letter","text":"` + letter + `"}`},
	{agent: "translate", text: "Translate the label of A-#.",
		script: `{"op":"error","text":"the model is overloaded"},{"op":"sleep","ms":400},` +
			`{"op":"artifact","id":"label","text":"Bei 30 °C waschen."}`},
	{agent: "orders", text: "Plan the delivery of order #."},
	{agent: "refunds", text: "Refund order #: it never arrived.", script: `{"op":"sleep","ms":1500},` +
		`{"op":"fail","text":"` + gatewayDown + `"}`},
}

const letter = `Dear customer,\n\nwe are **sorry** for the trouble with order #.\n\n` +
	`1. Your refund takes *three* days.\n2. You may keep the parcel.\n\nYour shop`

func fill(text string, order int) string { return strings.ReplaceAll(text, "#", strconv.Itoa(order)) }
