package client

import (
	"strings"
	"testing"
)

func TestParseTarget(t *testing.T) {
	for text, want := range map[string]target{
		"vsock://3:5005":                      {transport: transportVsock, cid: 3, port: 5005},
		"vsock://4294967294:1":                {transport: transportVsock, cid: 4294967294, port: 1},
		"unix:///run/guestd.sock":             {transport: transportUnix, address: "/run/guestd.sock"},
		"unix:///odd?name=1":                  {transport: transportUnix, address: "/odd?name=1"},
		"firecracker:///tmp/v.sock":           {transport: transportFirecracker, address: "/tmp/v.sock", port: 5005},
		"firecracker:///tmp/v.sock?port=52":   {transport: transportFirecracker, address: "/tmp/v.sock", port: 52},
		"firecracker:///v?port=4294967294":    {transport: transportFirecracker, address: "/v", port: 4294967294},
		"tcp://localhost:80":                  {transport: transportTCP, address: "localhost:80"},
		"tcp://[::1]:65535":                   {transport: transportTCP, address: "[::1]:65535"},
		"unix:///" + strings.Repeat("x", 106): {transport: transportUnix, address: "/" + strings.Repeat("x", 106)},
	} {
		got, err := parseTarget(text)
		if err != nil || got != want {
			t.Errorf("parseTarget(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestParseTargetTellsWhatIsWrong(t *testing.T) {
	for text, problem := range map[string]string{
		"":                                    "empty",
		"guest":                               "no scheme",
		"/run/guestd.sock":                    "no scheme",
		"http://host:80":                      `scheme "http" is not known`,
		"VSOCK://3:5005":                      "is not known",
		"vsock://3":                           "port is missing",
		"vsock://:5005":                       "CID is missing",
		"vsock://3:":                          "port is missing",
		"vsock://0:5005":                      "CID",
		"vsock://-1:5005":                     "CID",
		"vsock://4294967295:5005":             "CID",
		"vsock://3:4294967296":                "port",
		"vsock://3:5005/x":                    "port",
		"unix://":                             "path is missing",
		"unix://run/guestd.sock":              "not absolute",
		"unix:///" + strings.Repeat("x", 107): "108 bytes long",
		"unix:///a\x00b":                      "NUL",
		"firecracker://v.sock":                "not absolute",
		"firecracker:///v.sock?p=1":           "no query that is known",
		"firecracker:///v.sock?port=":         "port is missing",
		"firecracker:///v.sock?port=1&port=2": "port",
		"tcp://host":                          "not HOST:PORT",
		"tcp://:80":                           "host is missing",
		"tcp://host:http":                     "port",
		"tcp://host:65536":                    "greater than 65535",
		"tcp://::1:80":                        "brackets",
	} {
		err := CheckTarget(text)
		if err == nil {
			t.Errorf("%q is taken", text)
			continue
		}
		if !strings.Contains(err.Error(), problem) || !strings.Contains(err.Error(), "firecracker:///PATH?port=PORT") {
			t.Errorf("%q: %v; want it to tell %q and the accepted forms", text, err, problem)
		}
	}
	if _, err := Dial("nonsense"); err == nil {
		t.Error("Dial takes a malformed target")
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, seed := range []string{"vsock://3:5005", "unix:///x", "firecracker:///x?port=1", "tcp://[::1]:1", "tcp://a:1", "://", "vsock://:"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := parseTarget(text)
		if err != nil {
			return
		}
		again, err := parseTarget(parsed.String())
		if err != nil || again != parsed {
			t.Errorf("%q is %+v, whose own form %q is %+v, %v", text, parsed, parsed.String(), again, err)
		}
	})
}
