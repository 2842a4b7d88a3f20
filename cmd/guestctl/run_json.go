package main

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"guestd.internal/client"
)

// jsonView prints events as JSON lines. Text and JSON values stand as such, all others in Base64.
type jsonView struct {
	app     *app
	results client.ResultAssembler
}

func newJSONView(a *app) *jsonView { return &jsonView{app: a} }

func (v *jsonView) show(event client.Event) error {
	var line any
	switch d := event.Detail.(type) {
	case client.Started:
		line = struct {
			Type           string `json:"type"`
			ExecutionCount int    `json:"execution_count"`
			FreshKernel    bool   `json:"fresh_kernel,omitempty"`
			PreviousEnd    string `json:"previous_end,omitempty"`
		}{"started", d.ExecutionCount, d.FreshKernel, d.PreviousEnd}
	case client.Text:
		line = struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}{d.Stream.String(), d.Text}
	case client.Result, client.Data:
		result, whole := v.results.Add(d)
		if !whole {
			return nil
		}
		line = newJSONResult(result)
	case client.CodeError:
		line = struct {
			Type      string   `json:"type"`
			Name      string   `json:"name"`
			Value     string   `json:"value"`
			Traceback []string `json:"traceback"`
		}{"error", d.Name, d.Value, nonNil(d.Traceback)}
	case client.OutputGap:
		line = struct {
			Type   string `json:"type"`
			Stream string `json:"stream,omitempty"`
			Bytes  uint64 `json:"bytes"`
		}{"gap", gapStream(d), d.Bytes}
	case client.ClearOutput:
		line = struct {
			Type string `json:"type"`
			Wait bool   `json:"wait"`
		}{"clear_output", d.Wait}
	case client.InputRequest:
		line = struct {
			Type     string `json:"type"`
			Prompt   string `json:"prompt"`
			Password bool   `json:"password,omitempty"`
		}{"input_request", d.Prompt, d.Password}
	case client.Finished:
		line = newJSONFinished(d)
	default:
		return nil
	}
	return v.app.printJSON(line)
}

// jsonResult is a result in JSON.
type jsonResult struct {
	Type      string          `json:"type"`
	Data      map[string]any  `json:"data"`
	Main      bool            `json:"main"`
	Update    bool            `json:"update,omitempty"`
	DisplayID string          `json:"display_id,omitempty"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
	Truncated []string        `json:"truncated,omitempty"` // types left out for their size
}

func newJSONResult(r client.Result) jsonResult {
	out := jsonResult{
		Type: "result", Data: make(map[string]any), Main: r.Kind == client.MainResult, Update: r.Kind == client.UpdateResult,
		DisplayID: r.DisplayID,
	}
	if json.Valid(r.MetadataJSON) {
		out.Metadata = r.MetadataJSON
	}
	for _, part := range r.Parts {
		switch {
		case part.TruncatedBytes > 0:
			out.Truncated = append(out.Truncated, part.MIME)
		case isJSON(part.MIME) && json.Valid(part.Bytes):
			out.Data[part.MIME] = json.RawMessage(part.Bytes)
		case isText(part.MIME):
			out.Data[part.MIME] = string(part.Bytes)
		default:
			out.Data[part.MIME] = base64.StdEncoding.EncodeToString(part.Bytes)
		}
	}
	return out
}

func isJSON(mime string) bool { return mime == "application/json" || strings.HasSuffix(mime, "+json") }

// isText tells whether a type's contents are text, as Jupyter has them.
func isText(mime string) bool {
	return strings.HasPrefix(mime, "text/") || strings.HasSuffix(mime, "+xml") || isJSON(mime) ||
		mime == "application/javascript" || mime == "application/xml"
}

// jsonFinished is an execution's end in JSON.
type jsonFinished struct {
	Type             string  `json:"type"`
	Status           string  `json:"status"`
	ExecutionCount   int     `json:"execution_count"`
	Duration         float64 `json:"duration"` // seconds
	StateLost        bool    `json:"state_lost,omitempty"`
	OutputIncomplete bool    `json:"output_incomplete,omitempty"`
	ExitCode         *int    `json:"exit_code,omitempty"`
	Signal           int     `json:"signal,omitempty"`
}

func newJSONFinished(f client.Finished) jsonFinished {
	out := jsonFinished{
		Type: "finished", Status: f.Status.String(), ExecutionCount: f.ExecutionCount, Duration: f.Duration.Seconds(),
		StateLost: f.StateLost, OutputIncomplete: f.OutputIncomplete, Signal: int(f.Signal),
	}
	if f.ExitCode >= 0 {
		out.ExitCode = &f.ExitCode
	}
	return out
}

func gapStream(g client.OutputGap) string {
	if g.Stream == 0 {
		return ""
	}
	return g.Stream.String()
}
