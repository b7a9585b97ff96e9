package check

import (
	"fmt"
	"strconv"
	"strings"
)

// Delivery is one request that the receiver of a webhook got.
type Delivery struct {
	ID       string // Webhook-Id
	Body     string
	Accepted bool // the receiver answered that it has the notification
}

// Deliveries checks the requests that receivers got, in their order, against I5: for each webhook the first deliveries
// are in order, and repeated ones are identical. It returns the number of repeated deliveries, and the violations.
func Deliveries(got []Delivery) (duplicates int, wrong []string) {
	last := map[string]int64{}
	bodies := map[string]string{}
	accepted := map[string]bool{}
	for _, d := range got {
		at := strings.LastIndexByte(d.ID, '_')
		if at < 0 {
			wrong = append(wrong, fmt.Sprintf("webhook-id %q", d.ID))
			continue
		}
		hook := d.ID[:at]
		seq, err := strconv.ParseInt(d.ID[at+1:], 10, 64)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("webhook-id %q", d.ID))
			continue
		}
		if body, again := bodies[d.ID]; again && body != d.Body {
			wrong = append(wrong, fmt.Sprintf("%s has two bodies:\n%s\n%s", d.ID, body, d.Body))
		}
		bodies[d.ID] = d.Body
		if !d.Accepted {
			continue
		}
		if accepted[d.ID] {
			duplicates++
			continue
		}
		accepted[d.ID] = true
		if seq < last[hook] {
			wrong = append(wrong, fmt.Sprintf("%s was first delivered after event %d", d.ID, last[hook]))
		}
		last[hook] = seq
	}
	return duplicates, wrong
}
