package jupyter

import (
	"encoding/json"
	"fmt"
)

// Message types that guestd sends or understands. All others are ignored.
const (
	TypeExecuteRequest    = "execute_request"
	TypeExecuteReply      = "execute_reply"
	TypeKernelInfoRequest = "kernel_info_request"
	TypeKernelInfoReply   = "kernel_info_reply"
	TypeCompleteRequest   = "complete_request"
	TypeInspectRequest    = "inspect_request"
	TypeInterruptRequest  = "interrupt_request"
	TypeInputRequest      = "input_request"
	TypeInputReply        = "input_reply"
	TypeStatus            = "status"
	TypeStream            = "stream"
	TypeExecuteInput      = "execute_input"
	TypeExecuteResult     = "execute_result"
	TypeDisplayData       = "display_data"
	TypeUpdateDisplayData = "update_display_data"
	TypeClearOutput       = "clear_output"
	TypeError             = "error"
)

// ExecuteRequest is the content of an execute_request. StopOnError is false
// always: with true the kernel aborts what is sent after an error.
type ExecuteRequest struct {
	Code            string            `json:"code"`
	Silent          bool              `json:"silent"`
	StoreHistory    bool              `json:"store_history"`
	UserExpressions map[string]string `json:"user_expressions"`
	AllowStdin      bool              `json:"allow_stdin"`
	StopOnError     bool              `json:"stop_on_error"`
}

// Reply statuses. A kernel spells the third one "aborted".
const (
	StatusOK      = "ok"
	StatusError   = "error"
	StatusAborted = "aborted"
)

// ExecuteReply is the content of an execute_reply.
type ExecuteReply struct {
	Status         string    `json:"status"`
	ExecutionCount int64     `json:"execution_count"`
	Payload        []Payload `json:"payload"`
	// UserExpressions are the values of the request's, by name.
	UserExpressions map[string]UserExpression `json:"user_expressions"`
	ErrorContent
}

// UserExpression is the value of one of an execute_request's user_expressions.
type UserExpression struct {
	Status string                     `json:"status"` // StatusOK or StatusError
	Data   map[string]json.RawMessage `json:"data"`   // with StatusOK, the value's MIME bundle
	ErrorContent
}

// KernelInfo is the content of a kernel_info_reply, as far as it is of use.
type KernelInfo struct {
	// Guestd is there in kernels that run guestd's launcher (package pykernel).
	Guestd *struct {
		Launcher int `json:"launcher"` // 1, the version of what it promises
	} `json:"guestd"`
}

// Payload is an entry of an execute_reply's payload list.
type Payload struct {
	Source string                     `json:"source"` // "page", "ask_exit", "set_next_input", …
	Data   map[string]json.RawMessage `json:"data"`   // a page's MIME bundle
	Text   string                     `json:"text"`   // of set_next_input
}

// CompleteRequest is the content of a complete_request.
type CompleteRequest struct {
	Code   string `json:"code"`
	Cursor int    `json:"cursor_pos"` // in code points
}

// CompleteReply is the content of a complete_reply.
type CompleteReply struct {
	Status   string          `json:"status"`
	Matches  []string        `json:"matches"`
	Start    int             `json:"cursor_start"`
	End      int             `json:"cursor_end"`
	Metadata json.RawMessage `json:"metadata"`
	ErrorContent
}

// InspectRequest is the content of an inspect_request.
type InspectRequest struct {
	Code   string `json:"code"`
	Cursor int    `json:"cursor_pos"`   // in code points
	Detail int    `json:"detail_level"` // 0 or 1
}

// InspectReply is the content of an inspect_reply.
type InspectReply struct {
	Status string                     `json:"status"`
	Found  bool                       `json:"found"`
	Data   map[string]json.RawMessage `json:"data"`
	ErrorContent
}

// ErrorContent is the content of an error message, and part of an error reply.
type ErrorContent struct {
	Name      string   `json:"ename"`
	Value     string   `json:"evalue"`
	Traceback []string `json:"traceback"`
}

// StateIdle is the execution state of a status message that ends a request.
const StateIdle = "idle"

// Status is the content of a status message.
type Status struct {
	ExecutionState string `json:"execution_state"`
}

// Stream is the content of a stream message.
type Stream struct {
	Name string `json:"name"` // "stdout" or "stderr"
	Text string `json:"text"`
}

// ExecuteInput is the content of an execute_input message.
type ExecuteInput struct {
	ExecutionCount int64 `json:"execution_count"`
}

// Display is the content of execute_result, display_data and
// update_display_data.
type Display struct {
	Data      map[string]json.RawMessage `json:"data"`
	Metadata  json.RawMessage            `json:"metadata"`
	Transient struct {
		DisplayID string `json:"display_id"`
	} `json:"transient"`
}

// ClearOutput is the content of a clear_output message.
type ClearOutput struct {
	Wait bool `json:"wait"`
}

// InputRequest is the content of an input_request.
type InputRequest struct {
	Prompt   string `json:"prompt"`
	Password bool   `json:"password"`
}

// InputReply is the content of an input_reply.
type InputReply struct {
	Value string `json:"value"`
}

// DecodeContent decodes the message's content into out. Invalid UTF-8 and lone
// surrogates become U+FFFD; nesting deeper than encoding/json's 10,000 levels is
// an error. The error wraps ErrMalformed.
func (m *Message) DecodeContent(out any) error {
	if err := json.Unmarshal(m.Content, out); err != nil {
		return fmt.Errorf("%w: content of %s: %w", ErrMalformed, m.Header.MsgType, err)
	}
	return nil
}

// State returns the execution state of a status message, and "" for any other.
func (m *Message) State() string {
	var status Status
	if m.Header.MsgType != TypeStatus || m.DecodeContent(&status) != nil {
		return ""
	}
	return status.ExecutionState
}
