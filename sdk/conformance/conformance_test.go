package conformance_test

import "testing"

// Every library does in every case exactly what the case says.
func TestConformance(t *testing.T) {
	t.Parallel()
	cases := loadCases(t)
	for _, d := range drivers(t) {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			shared := startServer(t, cases...)
			t.Run("case", func(t *testing.T) { // ends when its cases have ended
				for _, c := range cases {
					t.Run(c.Case, func(t *testing.T) {
						t.Parallel()
						srv := shared
						if c.OwnServer {
							srv = startServer(t, c)
						}
						play(t, c, d, srv)
					})
				}
			})
		})
	}
}
