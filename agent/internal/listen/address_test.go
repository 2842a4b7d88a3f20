package listen

import (
	"strings"
	"testing"
)

func TestParseAddress(t *testing.T) {
	for in, want := range map[string]Address{
		"vsock://:5005":        {Kind: Vsock, Port: 5005},
		"unix:///run/g.sock":   {Kind: Unix, Path: "/run/g.sock"},
		"unix:///run//a/../b":  {Kind: Unix, Path: "/run/b"},
		"unix:///with%20space": {Kind: Unix, Path: "/with space"},
		"tcp://127.0.0.1:0":    {Kind: TCP, Host: "127.0.0.1"},
		"tcp://[::1]:65535":    {Kind: TCP, Host: "::1", Port: 65535},
		"tcp://:80":            {Kind: TCP, Port: 80},
		"vsock://:4294967294":  {Kind: Vsock, Port: 1<<32 - 2},
	} {
		got, err := ParseAddress(in)
		if err != nil || got != want {
			t.Errorf("ParseAddress(%q) = %+v, %v; want %+v", in, got, err, want)
			continue
		}
		if again, err := ParseAddress(got.String()); err != nil || again != got {
			t.Errorf("ParseAddress(%q), its own String = %+v, %v", got, again, err)
		}
	}
	for in, says := range map[string]string{
		"":                                    "want vsock://",
		"5005":                                "want vsock://",
		"http://x:1":                          "want vsock://",
		"vsock://3:5005":                      "without a context id",
		"vsock://:0":                          "a port from 1",
		"vsock://:4294967295":                 "a port from 1",
		"vsock://:x":                          "port",
		"unix://relative":                     "absolute path",
		"unix:relative":                       "want no user",
		"tcp://host":                          "a port from 0",
		"tcp://host:65536":                    "a port from 0",
		"tcp://host:1/path":                   "a port from 0",
		"tcp://u@host:1":                      "want no user",
		"tcp://[fe80::1%25e\xc9]:1":           "an IP address or a name",
		"tcp://host:1?x":                      "want no user",
		"unix:///" + strings.Repeat("x", 107): "107 at most",
	} {
		if got, err := ParseAddress(in); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("ParseAddress(%q) = %+v, %v; want an error with %q", in, got, err, says)
		}
	}
}

// FuzzParseAddress checks that what is accepted means the same when it is written
// out and read again.
func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"vsock://:5005", "unix:///run/g.sock", "tcp://[::1]:80", "tcp://[fe80::1%25eth0]:80", "unix:///%00", "tCp://::%25\xc9:0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddress(s)
		if err != nil {
			return
		}
		if strings.ContainsRune(a.Path, 0) {
			t.Fatalf("%q has a NUL in its path", s)
		}
		if again, err := ParseAddress(a.String()); err != nil || again != a {
			t.Fatalf("%q is %+v, and written out and read again %+v, %v", s, a, again, err)
		}
	})
}
