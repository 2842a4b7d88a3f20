package jupyter

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
)

func hexOf(b []byte) string { return hex.EncodeToString(b) }

func bytesOf(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParts(t *testing.T) {
	for _, test := range []struct{ mime, value, want string }{
		{"text/plain", `"a\nb"`, "a\nb"},
		{"text/html", `["<b>", "x", "</b>"]`, "<b>x</b>"},
		{"text/plain", `"\ud800"`, "\uFFFD"},
		{"text/latex", `"aGk="`, "aGk="},
		{"text/plain; charset=utf-8", `"aGk="`, "aGk="},
		{"image/svg+xml", `"<svg/>"`, "<svg/>"},
		{"application/javascript", `"aGk="`, "aGk="},
		{"image/png", `"aGk="`, "hi"},
		{"image/PNG", `"aGk=\n"`, "hi"},
		{"image/jpeg", `"aG\nk="`, "hi"},
		{"application/pdf", `"aGk="`, "hi"},
		{"image/png", `"not base64!"`, "not base64!"},
		{"image/png", `7`, "7"},
		{"application/json", `{"a": [1, "x"]}`, `{"a":[1,"x"]}`},
		{"application/json", `"text"`, `"text"`},
		{"application/vnd.plotly.v1+json", `{"data": []}`, `{"data":[]}`},
		{"application/vnd.jupyter.thing", `"aGk="`, "aGk="},
		{"application/vnd.ms-excel", `"aGk="`, "hi"},
		{"application/x-custom", `{"k": 1}`, `{"k":1}`},
	} {
		parts := Parts(map[string]json.RawMessage{test.mime: json.RawMessage(test.value)})
		if len(parts) != 1 || parts[0].MIME != test.mime || string(parts[0].Data) != test.want {
			t.Errorf("%s %s: %q, want %q", test.mime, test.value, parts, test.want)
		}
	}
	parts := Parts(map[string]json.RawMessage{"text/plain": []byte(`"1"`), "image/png": []byte(`""`), "text/html": []byte(`"2"`)})
	var order []string
	for _, part := range parts {
		order = append(order, part.MIME)
	}
	if got := strings.Join(order, " "); got != "image/png text/html text/plain" {
		t.Errorf("order %s", got)
	}
}

func TestConnection(t *testing.T) {
	a, err := NewConnection("/run/guestd/k/0123abcd")
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewConnection("/run/guestd/k/0123abcd")
	if err != nil {
		t.Fatal(err)
	}
	data, err := a.File("python3", "/run/guestd/k/0123abcd")
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if file["transport"] != "ipc" || file["signature_scheme"] != "hmac-sha256" || file["kernel_name"] != "python3" || file["shell_port"] != 1.0 {
		t.Errorf("%s", data)
	}
	if key := file["key"].(string); len(bytesOf(t, key)) != 32 || key == b.key {
		t.Errorf("key %q", key)
	}
	if got := a.Path(IOPub); got != "/run/guestd/k/0123abcd/k-2" {
		t.Errorf("path %q", got)
	}
	if _, err := NewConnection("/" + strings.Repeat("x", 102)); err != nil {
		t.Errorf("a path of 107 bytes: %v", err)
	}
	if _, err := NewConnection("/" + strings.Repeat("x", 103)); err == nil {
		t.Error("a path of 108 bytes was taken")
	}
}
