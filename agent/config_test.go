package agent

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestConfigValidate(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg         Config
		field, says string
	}{
		"zero":           {Config{}, "", ""},
		"several":        {Config{Listen: []string{"vsock://:1", "unix:///s", "tcp://:0"}, TokenFile: "/t"}, "", ""},
		"no token":       {Config{Listen: []string{"unix:///s", "tcp://127.0.0.1:1"}}, "Listen", "needs a token"},
		"bad address":    {Config{Listen: []string{"nonsense"}}, "Listen", "want vsock://"},
		"empty address":  {Config{Listen: []string{""}}, "Listen", "want vsock://"},
		"relative state": {Config{StateDir: "state"}, "StateDir", "not absolute"},
		"long state":     {Config{StateDir: "/" + strings.Repeat("x", 70)}, "StateDir", "70 are the most"},
		"cgroup":         {Config{CgroupRoot: "off"}, "CgroupRoot", "none"},
		"no cgroup":      {Config{CgroupRoot: "none"}, "", ""},
		"long drain":     {Config{Drain: time.Minute}, "Drain", "10s is the most"},
	} {
		err := tt.cfg.Validate()
		if tt.field == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var e *ConfigError
		if !errors.As(err, &e) || e.Field != tt.field || !strings.Contains(e.Problem, tt.says) {
			t.Errorf("%s: %v, want %s with %q", name, err, tt.field, tt.says)
		}
	}
}

func TestConfigDrain(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{0: DefaultDrain, -1: 0, time.Second: time.Second} {
		if got := (&Config{Drain: given}).drain(); got != want {
			t.Errorf("Drain %v means %v, want %v", given, got, want)
		}
	}
}

func TestConfigDefaultsToVsock(t *testing.T) {
	addresses, err := (&Config{}).addresses()
	if err != nil || len(addresses) != 1 || addresses[0].String() != DefaultListen {
		t.Errorf("= %v, %v", addresses, err)
	}
}
