package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

// unit is what a value counts.
type unit string

const (
	seconds        unit = "s"
	bytesPerSecond unit = "B/s"
	sizeInBytes    unit = "B"
)

// limit is what guestd has to hold.
type limit struct {
	// Least: the figure must be at least Value; otherwise at most.
	Least bool    `json:"least"`
	Value float64 `json:"value"`
}

func (l limit) held(figure float64) bool {
	if l.Least {
		return figure >= l.Value
	}
	return figure <= l.Value
}

func atMost(value float64) *limit  { return &limit{Value: value} }
func atLeast(value float64) *limit { return &limit{Least: true, Value: value} }

// result is one line of the report.
type result struct {
	Measure string  `json:"measure"`
	Name    string  `json:"name"`
	Unit    unit    `json:"unit"`
	Value   float64 `json:"value"` // the median of Rounds
	// P25 and P75 are the quartiles of what took time; a throughput's are in seconds.
	P25    float64 `json:"p25_s,omitempty"`
	P75    float64 `json:"p75_s,omitempty"`
	Rounds int     `json:"rounds,omitempty"`
	// FloorName says what did the same job with the least means; "" where there is
	// nothing to compare with. Ratio is Value/Floor.
	FloorName string  `json:"floor_name,omitempty"`
	Floor     float64 `json:"floor,omitempty"`
	Ratio     float64 `json:"ratio,omitempty"`
	// Limit is on Ratio where there is a floor, else on Value; nil where the line
	// is for information.
	Limit *limit `json:"limit,omitempty"`
	Held  *bool  `json:"held,omitempty"`
}

// latency compares times.
func latency(name string, ours sample, floorName string, floor sample, l *limit) result {
	return timesOf(name, seconds, ours).against(floorName, floor.median().Seconds(), l)
}

// throughput compares rates of moving so many bytes.
func throughput(name string, size int64, ours sample, floorName string, floor sample, l *limit) result {
	r := timesOf(name, bytesPerSecond, ours)
	r.Value = float64(size) / ours.median().Seconds()
	return r.against(floorName, float64(size)/floor.median().Seconds(), l)
}

func timesOf(name string, u unit, s sample) result {
	return result{Name: name, Unit: u, Value: s.median().Seconds(), Rounds: len(s),
		P25: s.quantile(0.25).Seconds(), P75: s.quantile(0.75).Seconds()}
}

func (r result) against(floorName string, floor float64, l *limit) result {
	r.FloorName, r.Floor, r.Ratio = floorName, floor, r.Value/floor
	return r.judge(r.Ratio, l)
}

// absolute is a value that is compared with nothing.
func absolute(name string, u unit, value float64, l *limit) result {
	return result{Name: name, Unit: u, Value: value}.judge(value, l)
}

func (r result) judge(figure float64, l *limit) result {
	if r.Limit = l; l != nil {
		held := l.held(figure)
		r.Held = &held
	}
	return r
}

// report is what a run has found.
type report struct {
	CPUs       int      `json:"cpus"`
	Kernel     string   `json:"kernel"`
	Go         string   `json:"go"`
	Begun      string   `json:"begun"`
	LoadBefore string   `json:"load_before"` // of the last minute
	LoadAfter  string   `json:"load_after"`
	Results    []result `json:"results"`
}

func newReport() *report {
	return &report{CPUs: runtime.NumCPU(), Kernel: firstField("/proc/sys/kernel/osrelease"), Go: runtime.Version(),
		Begun: time.Now().UTC().Format(time.RFC3339), LoadBefore: firstField("/proc/loadavg"), Results: []result{}}
}

func (r *report) add(measure string, results []result) {
	for _, result := range results {
		result.Measure = measure
		r.Results = append(r.Results, result)
	}
}

func (r *report) finish() { r.LoadAfter = firstField("/proc/loadavg") }

// firstField is a file's first word; "?" where it cannot be read.
func firstField(path string) string {
	text, err := os.ReadFile(path)
	if fields := strings.Fields(string(text)); err == nil && len(fields) > 0 {
		return fields[0]
	}
	return "?"
}

func (r *report) json(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

func (r *report) table(w io.Writer) error {
	fmt.Fprintf(w, "%d CPUs, Linux %s, %s; load %s before, %s after\n\n", r.CPUs, r.Kernel, r.Go, r.LoadBefore, r.LoadAfter)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "measure\tguestd\tfloor\t\tratio\tlimit\t")
	for _, one := range r.Results {
		fmt.Fprintln(t, one.row())
	}
	return t.Flush()
}

func (r result) row() string {
	cells := []string{r.Name, r.Unit.format(r.Value), "", "", "", "", ""}
	if r.FloorName != "" {
		cells[2], cells[3], cells[4] = r.Unit.format(r.Floor), r.FloorName, fmt.Sprintf("%.2f", r.Ratio)
	}
	if r.Limit != nil {
		sign := "≤"
		if r.Limit.Least {
			sign = "≥"
		}
		bound := fmt.Sprintf("%.2f", r.Limit.Value)
		if r.FloorName == "" {
			bound = r.Unit.format(r.Limit.Value)
		}
		cells[5], cells[6] = sign+" "+bound, "FAIL"
		if *r.Held {
			cells[6] = "ok"
		}
	}
	return strings.Join(cells, "\t")
}

// format writes a value for people.
func (u unit) format(value float64) string {
	switch u {
	case seconds:
		switch {
		case value < 1e-3:
			return fmt.Sprintf("%.0f µs", value*1e6)
		case value < 1:
			return fmt.Sprintf("%.2f ms", value*1e3)
		}
		return fmt.Sprintf("%.2f s", value)
	case bytesPerSecond:
		return fmt.Sprintf("%.0f MB/s", value/1e6)
	default:
		return fmt.Sprintf("%.1f MiB", value/(1<<20))
	}
}
