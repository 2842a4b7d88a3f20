package client

import "strings"

// Outcome is everything that an execution produced, in memory.
type Outcome struct {
	// Stdout and Stderr are all its text.
	Stdout, Stderr string
	// Results are its values and displays in order, large parts included; an update stands where
	// the display that it renews stood.
	Results []Result
	// Error is its error; nil where it had none.
	Error *CodeError
	// Gaps tell of output that was dropped.
	Gaps []OutputGap
	// Finished is how it ended.
	Finished Finished
}

// Main gives the value of the code's last expression, if it had one.
func (o *Outcome) Main() (Result, bool) {
	for _, result := range o.Results {
		if result.Kind == MainResult {
			return result, true
		}
	}
	return Result{}, false
}

// Outcome reads all events and collects what they carry. An error in the code is part of the
// outcome; the error is that of the call. InputRequest events are answered with the end of input.
func (x *Execution) Outcome() (*Outcome, error) {
	var stdout, stderr strings.Builder
	outcome := &Outcome{}
	results := &ResultAssembler{}
	for event, err := range x.Events() {
		if err != nil {
			return nil, err
		}
		switch d := event.Detail.(type) {
		case Text:
			if d.Stream == Stderr {
				stderr.WriteString(d.Text)
			} else {
				stdout.WriteString(d.Text)
			}
		case Result, Data:
			if result, done := results.Add(d); done {
				outcome.addResult(result)
			}
		case InputRequest:
			if err := x.EndInput(x.ctx); err != nil {
				return nil, err
			}
		case CodeError:
			outcome.Error = &d
		case OutputGap:
			outcome.Gaps = append(outcome.Gaps, d)
		case Finished:
			outcome.Finished = d
		}
	}
	outcome.Stdout, outcome.Stderr = stdout.String(), stderr.String()
	return outcome, nil
}

func (o *Outcome) addResult(result Result) {
	if result.Kind == UpdateResult {
		for i := range o.Results {
			if o.Results[i].DisplayID == result.DisplayID {
				o.Results[i].Parts, o.Results[i].MetadataJSON = result.Parts, result.MetadataJSON
				return
			}
		}
	}
	o.Results = append(o.Results, result)
}

// ResultAssembler joins a Result with the Data events that follow it. It holds one result at a time.
type ResultAssembler struct {
	result  Result
	missing map[string]uint64 // bytes that are still to come, by MIME type
}

// Add takes the next Result or Data, and gives the result once it is whole, its parts then all with
// Bytes. Every other detail is ignored, as is data that belongs to no result.
func (a *ResultAssembler) Add(detail EventDetail) (whole Result, done bool) {
	switch d := detail.(type) {
	case Result:
		a.result = d
		a.missing = make(map[string]uint64)
		for _, part := range d.Parts {
			if part.Size > 0 {
				a.missing[part.MIME] = part.Size
			}
		}
	case Data:
		if !a.addData(d) {
			return Result{}, false
		}
	default:
		return Result{}, false
	}
	if len(a.missing) > 0 {
		return Result{}, false
	}
	whole, a.result = a.result, Result{}
	return whole, true
}

func (a *ResultAssembler) addData(d Data) bool {
	missing, wanted := a.missing[d.MIME]
	if !wanted || d.ResultNumber != a.result.Number || uint64(len(d.Bytes)) > missing {
		return false
	}
	for i := range a.result.Parts {
		part := &a.result.Parts[i]
		if part.MIME != d.MIME {
			continue
		}
		part.Bytes = append(part.Bytes, d.Bytes...)
		if missing -= uint64(len(d.Bytes)); missing > 0 && !d.Last {
			a.missing[d.MIME] = missing
			continue
		}
		part.Size = 0
		delete(a.missing, d.MIME)
	}
	return true
}
