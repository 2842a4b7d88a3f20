package agent

import (
	"errors"
	"strings"

	"guestd.internal/agent/internal/replay"
	"guestd.internal/proc"
)

// processFields are the API's names of what proc calls by the names of its Go
// fields, so that an error names what the client has written.
var processFields = map[string]string{
	"Args":             "spec.arguments.values",
	"Shell":            "spec.shell",
	"LoginShell":       "spec.login_shell",
	"User":             "spec.user",
	"Dir":              "spec.cwd",
	"Env":              "spec.env",
	"ClearEnv":         "spec.clear_env",
	"Stdin":            "spec.stdin",
	"Terminal":         "spec.terminal",
	"Merge":            "spec.output",
	"Timeout":          "spec.timeout",
	"KillGrace":        "spec.kill_grace",
	"KillOnDisconnect": "spec.on_disconnect",
	"Umask":            "spec.umask",
	"Nice":             "spec.nice",
	"OOMScoreAdj":      "spec.oom_score_adj",
	"Rlimits":          "spec.limits",
	"Labels":           "spec.labels",
	"LogLimit":         "spec.log_limit_bytes",

	"ReaderID":        "reader.reader_id",
	"Mode":            "reader.mode",
	"StallTimeout":    "reader.stall_timeout",
	"ReconnectGrace":  "reader.reconnect_grace",
	"Offsets":         "offsets",
	"FromNow":         "from_now",
	"FollowAfterExit": "follow_after_exit",

	"Size":  "page_size",
	"Token": "page_token",
}

// inAPI gives an error of proc's about a malformed field the API's name of it:
// "Env[2].Name" becomes "spec.env[2].name".
func inAPI(err error) error {
	if errors.Is(err, replay.ErrMalformed) {
		return invalid("request_id", err.Error())
	}
	var malformed *proc.InvalidError
	if !errors.As(err, &malformed) {
		return err
	}
	end := strings.IndexAny(malformed.Field, "[.")
	if end < 0 {
		end = len(malformed.Field)
	}
	name, ok := processFields[malformed.Field[:end]]
	if !ok {
		return err
	}
	return invalid(name+strings.ToLower(malformed.Field[end:]), malformed.Problem)
}
