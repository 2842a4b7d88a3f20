package vm

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCPIOLayout spells out the layout of the kernel's buffer-format.rst. That a
// kernel unpacks it is shown by each guest that boots.
func TestCPIOLayout(t *testing.T) {
	var got bytes.Buffer
	c := cpioWriter{w: &got}
	if err := c.add(entry{name: "d/f", mode: modeRegular | 0o640, uid: 1000, gid: 5, data: []byte("hi")}); err != nil {
		t.Fatal(err)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	want := "070701" + "00000001" + "000081a0" + "000003e8" + "00000005" + "00000001" + "00000000" + "00000002" +
		"00000000" + "00000000" + "00000000" + "00000000" + "00000004" + "00000000" + "d/f\x00" + "\x00\x00" + "hi\x00\x00" +
		"070701" + "00000000" + "00000000" + "00000000" + "00000000" + "00000001" + "00000000" + "00000000" +
		"00000000" + "00000000" + "00000000" + "00000000" + "0000000b" + "00000000" + "TRAILER!!!\x00" + "\x00\x00\x00"
	if diff := cmp.Diff(hex.Dump([]byte(want)), hex.Dump(got.Bytes())); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
}

func TestCPIORefusesAbsoluteNames(t *testing.T) {
	for _, name := range []string{"", "/etc"} {
		if err := new(cpioWriter).add(entry{name: name}); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("add(%q) = %v, want fs.ErrInvalid", name, err)
		}
	}
}

// fakeParts makes a folder like the one that scripts/vm-parts.sh fills.
func fakeParts(t *testing.T) string {
	t.Helper()
	parts := t.TempDir()
	write := func(name, content string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(parts, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("bash", "bash", 0o755)
	write("busybox", "#!/bin/sh\necho sh; echo bash\n", 0o755)
	builtin := ""
	for i, name := range strings.Fields(string(guestModules)) {
		if i == 0 {
			builtin = "kernel/drivers/" + name + ".ko\n"
		} else {
			write("modules/"+name+".ko", name, 0o644)
		}
	}
	write("modules.builtin", builtin, 0o644)
	return parts
}

func TestImage(t *testing.T) {
	parts := fakeParts(t)
	extra := map[string]string{"/opt/deep/tool": filepath.Join(parts, "bash"), "/opt/other": filepath.Join(parts, "bash")}
	var first, second bytes.Buffer
	for _, w := range []*bytes.Buffer{&first, &second} {
		if err := writeImage(w, parts, filepath.Join(parts, "bash"), extra); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same files give different images")
	}
	for _, name := range []string{"init", "usr/bin/guestd", "usr/bin/sh", "opt/deep", "opt/deep/tool", "usr/lib/modules/vsock.ko", "TRAILER!!!"} {
		if n := bytes.Count(first.Bytes(), []byte(name+"\x00")); n != 1 {
			t.Errorf("the image has %s %d times, want once", name, n)
		}
	}
	// The real bash wins over busybox's program of that name.
	if n := bytes.Count(first.Bytes(), []byte("usr/bin/bash\x00")); n != 1 {
		t.Errorf("the image has usr/bin/bash %d times, want once", n)
	}
}

func TestImageNamesTheMissingModule(t *testing.T) {
	parts := fakeParts(t)
	if err := os.Remove(filepath.Join(parts, "modules", "vsock.ko")); err != nil {
		t.Fatal(err)
	}
	err := writeImage(new(bytes.Buffer), parts, filepath.Join(parts, "bash"), nil)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "module vsock") {
		t.Errorf("writeImage = %v, want an error that names the module vsock", err)
	}
}
