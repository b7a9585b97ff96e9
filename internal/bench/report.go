package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// figure is one number and its comparison.
type figure struct {
	Experiment string  `json:"experiment"`
	Name       string  `json:"name"`
	Value      float64 `json:"value"`
	Min        float64 `json:"min,omitempty"` // of several runs; Value is their median
	Max        float64 `json:"max,omitempty"`
	Unit       string  `json:"unit"`
	Baseline   string  `json:"baseline,omitempty"`
	Target     *target `json:"target,omitempty"` // nil: none; a figure that misses it fails the run
	Aim        *target `json:"aim,omitempty"`    // nil: none; what the project works towards
	Detail     string  `json:"detail,omitempty"`
	Load       float64 `json:"load"` // load average of the machine during the measurement
}

type target struct {
	AtLeast float64 `json:"at_least,omitempty"`
	AtMost  float64 `json:"at_most,omitempty"`
	Quiet   bool    `json:"quiet,omitempty"` // valid only on a quiet machine
}

func atLeast(v float64) *target { return &target{AtLeast: v} }
func atMost(v float64) *target  { return &target{AtMost: v} }

// onQuiet marks a target that another program on the machine may spoil.
func (t *target) onQuiet() *target { t.Quiet = true; return t }

func (t *target) met(v float64) bool {
	return t.AtLeast > 0 && v >= t.AtLeast || t.AtMost > 0 && v <= t.AtMost
}

func (f *figure) verdict() string {
	switch {
	case f.Target == nil:
		return ""
	case f.Target.met(f.Value):
		return "PASS"
	}
	return "MISS"
}

// aim says whether the figure is where the project wants it.
func (f *figure) aim() string {
	switch {
	case f.Aim == nil:
		return ""
	case f.Aim.met(f.Value):
		return "aim " + f.Aim.String() + ": reached"
	}
	return "aim " + f.Aim.String() + ": not reached"
}

// notes is what else is known of the figure.
func (f *figure) notes() (list []string) {
	for _, line := range []string{f.Baseline, f.Detail, f.aim()} {
		if line != "" {
			list = append(list, line)
		}
	}
	return list
}

func (t *target) String() string {
	if t == nil {
		return ""
	}
	s := "≤ " + number(t.AtMost)
	if t.AtLeast > 0 {
		s = "≥ " + number(t.AtLeast)
	}
	if t.Quiet {
		s += " (quiet)"
	}
	return s
}

// report is the result of a run.
type report struct {
	Machine machine  `json:"machine"`
	Quick   bool     `json:"quick,omitempty"`
	Figures []figure `json:"figures"`

	Comparisons []byServer `json:"comparisons,omitempty"`
	Missing     []string   `json:"missing,omitempty"` // official servers that could not be measured

	experiment string
	to         io.Writer // nil: print nothing before the end
}

func (r *report) begin(experiment string) { r.experiment = experiment }

// add records a figure.
func (r *report) add(f figure) {
	f.Experiment, f.Load = r.experiment, loadAverage()
	f.Target = f.Target.on(r.Machine.Speed, f.Unit) // an aim is the same on every machine
	r.Figures = append(r.Figures, f)
	if r.to == nil {
		return
	}
	fmt.Fprintf(r.to, "%-9s %-44s %12s %-8s %-15s %-4s  %s\n", f.Experiment, f.Name, number(f.Value), f.Unit, f.Target,
		f.verdict(), f.spread())
	for _, line := range f.notes() {
		fmt.Fprintf(r.to, "%-9s   %s\n", "", line)
	}
}

// series fills in a figure from several runs.
func (f figure) series(values []float64) figure {
	f.Value, f.Min, f.Max = median(values), slices.Min(values), slices.Max(values)
	return f
}

func (f *figure) spread() string {
	if f.Min == 0 && f.Max == 0 {
		return fmt.Sprintf("load %.1f", f.Load)
	}
	return fmt.Sprintf("%s to %s, load %.1f", number(f.Min), number(f.Max), f.Load)
}

func (r *report) missed() bool {
	return slices.ContainsFunc(r.Figures, func(f figure) bool { return f.verdict() == "MISS" })
}

func (r *report) head(w io.Writer) {
	m := &r.Machine
	fmt.Fprintf(w, "%d cores, %s, %s; %s; %s; PostgreSQL %s\n", m.Cores, m.CPU, m.Memory, m.OS, m.Go, m.PostgreSQL)
	fmt.Fprintf(w, "%s; flush of 8 KiB %s; load %.1f\n", m.settings(), m.Flush.Round(time.Microsecond), m.LoadBefore)
	fmt.Fprintf(w, "%s.\n\n", m.pace())
}

// pace says how fast the machine is, and what that means for the targets.
func (m *machine) pace() string {
	s := fmt.Sprintf("A plain transaction takes %.0f µs of CPU; on the reference machine, %d µs",
		m.Plain, referencePlain)
	if m.Speed < 1 {
		s += fmt.Sprintf(". So targets of rates and times are scaled by %.2f", m.Speed)
	}
	return s
}

func (m *machine) settings() string {
	var s []string
	for _, name := range shownSettings {
		s = append(s, name+"="+m.Settings[name])
	}
	return strings.Join(s, " ")
}

func (r *report) tail(w io.Writer) {
	passed, missed := 0, 0
	for i := range r.Figures {
		switch r.Figures[i].verdict() {
		case "PASS":
			passed++
		case "MISS":
			missed++
		}
	}
	for _, missing := range r.Missing {
		fmt.Fprintln(w, missing)
	}
	fmt.Fprintf(w, "\n%d targets met, %d missed; load %.1f before, %.1f after\n", passed, missed, r.Machine.LoadBefore,
		r.Machine.LoadAfter)
}

// markdown writes the table of the chosen figures.
func (r *report) markdown(w io.Writer, chosen func(f figure) bool) {
	m := &r.Machine
	fmt.Fprintf(w, "Taken on %s at commit `%s`", m.Date, m.Commit)
	if r.Quick {
		fmt.Fprint(w, ", with `-quick`")
	}
	fmt.Fprintf(w, ": %d cores (%s), %s; %s; %s; PostgreSQL %s. The disk flushes 8 KiB in %s. ",
		m.Cores, m.CPU, m.Memory, m.OS, m.Go, m.PostgreSQL, m.Flush.Round(time.Microsecond))
	fmt.Fprintf(w, "Load average %.1f before and %.1f after. %s.\n\n`%s`\n\n",
		m.LoadBefore, m.LoadAfter, m.pace(), m.settings())
	fmt.Fprintln(w, "| experiment | figure | median | min – max | target | | load "+
		"| baseline, and what else was seen |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|")
	for i := range r.Figures {
		f := &r.Figures[i]
		if !chosen(*f) {
			continue
		}
		spread := ""
		if f.Min != 0 || f.Max != 0 {
			spread = number(f.Min) + " – " + number(f.Max)
		}
		notes := strings.Join(f.notes(), "; ")
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %.1f | %s |\n",
			f.Experiment, f.Name, strings.TrimSpace(number(f.Value)+" "+f.Unit), spread, f.Target, f.verdict(), f.Load,
			strings.ReplaceAll(notes, "|", "\\|"))
	}
}

func (b *bench) commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "-C", b.root, "describe", "--always", "--dirty", "--abbrev=12",
		"--exclude=*").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// number prints about three digits, and never an exponent.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	if n == 0 {
		return 0
	}
	return (s[(n-1)/2] + s[n/2]) / 2
}

// quantile returns the value below which the share q of the sorted durations lies.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(float64(len(sorted))*q), len(sorted)-1)]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
