package vm

import (
	"bufio"
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// The guest's own files.
var (
	//go:embed guest/init
	guestInit []byte
	//go:embed guest/modules
	guestModules []byte // the modules to load, one a line, in order
)

// The guest's user database: root, the design's default account "user" (in a
// second group, so that supplementary groups can be seen), and nobody.
const (
	guestPasswd = "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
	guestGroup  = "root:x:0:\ntty:x:5:\nuser:x:1000:\nextra:x:2000:user\nnogroup:x:65534:\n"
)

// writeImage writes the guest's root file system as an initramfs: the user land
// and modules of parts, guestd, and extra (guest path to host path of further
// static programs).
func writeImage(w io.Writer, parts, guestd string, extra map[string]string) error {
	out := bufio.NewWriterSize(w, 1<<20)
	img := image{cpio: cpioWriter{w: out}, made: make(map[string]bool)}
	img.skeleton()
	img.text("etc/passwd", guestPasswd)
	img.text("etc/group", guestGroup)
	img.text("etc/hosts", "127.0.0.1 localhost guest\n")
	img.add(entry{name: "init", mode: modeRegular | 0o755, data: guestInit})
	img.program("usr/bin/guestd", guestd)
	img.program("usr/bin/bash", filepath.Join(parts, "bash"))
	img.busybox(filepath.Join(parts, "busybox"))
	img.modules(parts)
	for _, guest := range slices.Sorted(maps.Keys(extra)) {
		img.program(strings.TrimPrefix(guest, "/"), extra[guest])
	}
	if img.err != nil {
		return img.err
	}
	if err := img.cpio.close(); err != nil {
		return err
	}
	return out.Flush()
}

// image collects the guest's files. Its first error sticks.
type image struct {
	cpio cpioWriter
	made map[string]bool
	err  error
}

func (i *image) add(e entry) {
	if i.err != nil {
		return
	}
	i.parents(e.name)
	i.made[e.name] = true
	i.err = i.cpio.add(e)
}

// parents makes the folders above name that are not there yet.
func (i *image) parents(name string) {
	if dir := path.Dir(name); dir != "." && !i.made[dir] {
		i.add(entry{name: dir, mode: modeDir | 0o755})
	}
}

func (i *image) text(name, content string) {
	i.add(entry{name: name, mode: modeRegular | 0o644, data: []byte(content)})
}

func (i *image) program(name, host string) {
	if i.err != nil {
		return
	}
	content, err := os.ReadFile(host)
	if err != nil {
		i.err = fmt.Errorf("adding %s to the guest: %w", name, err)
		return
	}
	i.add(entry{name: name, mode: modeRegular | 0o755, data: content})
}

// skeleton makes the folders, a merged /usr, and /dev/console, which the kernel
// opens for init before anything is mounted.
func (i *image) skeleton() {
	for _, dir := range []string{"dev", "etc", "home", "proc", "run", "sys", "usr", "usr/bin", "usr/lib", "var", "var/lib", "var/log"} {
		i.add(entry{name: dir, mode: modeDir | 0o755})
	}
	i.add(entry{name: "root", mode: modeDir | 0o700})
	i.add(entry{name: "home/user", mode: modeDir | 0o755, uid: 1000, gid: 1000})
	i.add(entry{name: "tmp", mode: modeDir | 0o1777})
	i.add(entry{name: "var/tmp", mode: modeDir | 0o1777})
	for _, link := range [][2]string{{"bin", "usr/bin"}, {"sbin", "usr/bin"}, {"lib", "usr/lib"}, {"usr/sbin", "bin"}} {
		i.add(entry{name: link[0], mode: modeSymlink | 0o777, data: []byte(link[1])})
	}
	i.add(entry{name: "dev/console", mode: modeChar | 0o600, rmajor: 5, rminor: 1})
}

// busybox adds the binary and a link for each of its programs that the guest has
// no other one for. The binary is static, so it can be asked for their names here.
func (i *image) busybox(host string) {
	i.program("usr/bin/busybox", host)
	if i.err != nil {
		return
	}
	list, err := exec.Command(host, "--list").Output()
	if err != nil {
		i.err = fmt.Errorf("listing busybox's programs: %w", err)
		return
	}
	for name := range strings.FieldsSeq(string(list)) {
		if link := path.Join("usr/bin", name); !i.made[link] {
			i.add(entry{name: link, mode: modeSymlink | 0o777, data: []byte("busybox")})
		}
	}
}

// modules adds the kernel modules to load and their list. One that is neither in
// parts nor built in is an error here, where it can be read, and not a guest that
// comes up deaf.
func (i *image) modules(parts string) {
	builtin, err := os.ReadFile(filepath.Join(parts, "modules.builtin"))
	if err != nil {
		i.err = errors.Join(i.err, fmt.Errorf("reading the kernel's built-in modules: %w", err))
		return
	}
	var compiledIn []string
	for line := range strings.FieldsSeq(string(builtin)) {
		compiledIn = append(compiledIn, strings.TrimSuffix(path.Base(line), ".ko"))
	}
	i.text("usr/lib/modules/list", string(guestModules))
	for name := range bytes.FieldsSeq(guestModules) {
		file := string(name) + ".ko"
		content, err := os.ReadFile(filepath.Join(parts, "modules", file))
		switch {
		case err == nil:
			i.add(entry{name: path.Join("usr/lib/modules", file), mode: modeRegular | 0o644, data: content})
		case errors.Is(err, fs.ErrNotExist) && slices.Contains(compiledIn, string(name)):
		default:
			i.err = errors.Join(i.err, fmt.Errorf("adding kernel module %s: %w", name, err))
			return
		}
	}
}
