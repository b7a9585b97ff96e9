package conformance_test

import (
	"slices"
	"testing"
)

// Every library does in every case exactly what the case says.
func TestConformance(t *testing.T) {
	t.Parallel()
	cases := loadCases(t) // also without a driver: the cases must be valid
	checkFixtures(t, cases)
	if len(drivers) == 0 {
		t.Skip("no -driver: make sdk-conformance runs the drivers of the libraries")
	}
	playing := slices.Clone(drivers)
	if len(drivers) > 1 {
		playing = append(playing, mixed())
	}
	for _, d := range playing {
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
