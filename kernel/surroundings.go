package kernel

import (
	_ "embed" // surroundings.py
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"guestd.internal/internal/spawn"
	"guestd.internal/kernel/internal/jupyter"
)

// changeSurroundings defines change(cwd, env) for a Python kernel.
//
//go:embed surroundings.py
var changeSurroundings []byte

// surroundings are an execution's own working directory and environment, or what
// they replace, as surroundings.py takes them and returns them.
type surroundings struct {
	Dir *string            `json:"cwd"`
	Env map[string]*string `json:"env"`
}

// newSurroundings returns nil where nothing is to be changed.
func newSurroundings(dir string, env []spawn.EnvVar) *surroundings {
	if dir == "" && len(env) == 0 {
		return nil
	}
	s := &surroundings{Env: make(map[string]*string)}
	encode := func(value string) *string {
		encoded := hex.EncodeToString([]byte(value))
		return &encoded
	}
	if dir != "" {
		s.Dir = encode(dir)
	}
	for _, v := range env {
		value := encode(v.Value)
		if v.Unset {
			value = nil
		}
		s.Env[*encode(v.Name)] = value
	}
	return s
}

// beforeKey names the user expression that changes the surroundings.
const beforeKey = "guestd"

// request is what makes a kernel change its surroundings: silent, without code,
// and therefore without a count, history or line of its own. The expression uses
// one name of Python's and binds none.
func (s *surroundings) request() (jupyter.ExecuteRequest, error) {
	args, err := json.Marshal(s)
	if err != nil {
		return jupyter.ExecuteRequest{}, fmt.Errorf("encoding an execution's surroundings: %w", err)
	}
	script := fmt.Sprintf("%s\nbefore = change(**json.loads(%q))\n", changeSurroundings, args)
	// Go's quoting of ASCII is also Python's.
	expression := fmt.Sprintf("(lambda space: (__import__('builtins').exec(%+q, space), space['before'])[1])({})", script)
	return jupyter.ExecuteRequest{
		Silent:          true,
		UserExpressions: map[string]string{beforeKey: expression},
	}, nil
}

// changeError is an error of the kernel's own in changing its surroundings.
type changeError struct{ jupyter.ErrorContent }

func (e *changeError) Error() string { return e.Name + ": " + e.Value }

var errNoChange = errors.New("the kernel did not take the execution's environment and working directory")

// before reads the surroundings that were replaced from the reply to the request.
func before(reply *jupyter.ExecuteReply) (*surroundings, error) {
	value, ok := reply.UserExpressions[beforeKey]
	switch {
	case !ok:
		return nil, errNoChange
	case value.Status == jupyter.StatusError:
		return nil, &changeError{value.ErrorContent}
	}
	var text string
	if err := json.Unmarshal(value.Data["text/plain"], &text); err != nil {
		return nil, errors.Join(errNoChange, err)
	}
	s := new(surroundings)
	if err := json.Unmarshal([]byte(text), s); err != nil {
		return nil, errors.Join(errNoChange, err)
	}
	return s, nil
}
