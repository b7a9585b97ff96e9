package config

import "testing"

func TestTraceURLs(t *testing.T) {
	t.Parallel()
	for text, valid := range map[string]bool{
		"https://j.example/trace/{trace_id}":              true,
		"http://localhost:16686/trace/{trace_id}?view=1":  true,
		"https://g.example/explore?q=%22{trace_id}%22#x":  true,
		"https://j.example/trace/":                        false,
		"https://j.example/{trace_id}/{trace_id}":         false,
		"https://j.example/{trace_id}/{span_id}":          false,
		"https://{trace_id}.example/trace":                false,
		"https://j.example{trace_id}/":                    false,
		"https://ann:secret@j.example/{trace_id}":         false,
		"javascript:alert(1)//{trace_id}":                 false,
		"//j.example/{trace_id}":                          false,
		"/trace/{trace_id}":                               false,
		"file:///var/{trace_id}":                          false,
		"https://j.example/%zz/{trace_id}":                false,
		"https://j.example/trace/{trace_id}%zz":           false,
		"data:text/html,https://j.example/x/{trace_id}":   false,
		" https://j.example/trace/{trace_id}":             false,
		"https://j.example:port/trace/{trace_id}":         false,
		"https://j.example/trace/{trace_id}\nX-Header: 1": false,
	} {
		var u TraceURL
		if err := u.UnmarshalText([]byte(text)); (err == nil) != valid {
			t.Errorf("%q: %v, want valid %v", text, err, valid)
		}
	}
}
