package stress

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"guestd.internal/test/need"
)

// tmux is a tmux server with one window, which runs guestctl in a terminal as people
// have it.
type tmux struct {
	t      *testing.T
	socket string
}

// openWindow runs a guestctl of the guestd's in a new window; what it ends with is
// shown behind it, as "ended with CODE".
func (g *guestd) openWindow(t *testing.T, columns, rows int, args ...string) *tmux {
	t.Helper()
	w := &tmux{t: t, socket: filepath.Join(t.TempDir(), "tmux")}
	command := fmt.Sprintf("%s --target %s %s; echo ended with $?; exec cat",
		filepath.Join(bin, "guestctl"), g.target(), strings.Join(args, " "))
	w.do("-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(columns), "-y", fmt.Sprint(rows), command)
	t.Cleanup(w.close)
	w.do("set-option", "-g", "window-size", "manual")
	w.do("set-option", "-g", "status", "off")
	w.size(columns, rows)
	return w
}

func (w *tmux) command(args ...string) *exec.Cmd {
	cmd := exec.Command("tmux", append([]string{"-S", w.socket}, args...)...)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "LC_ALL=C.UTF-8", "TMUX=")
	return cmd
}

func (w *tmux) do(args ...string) string {
	w.t.Helper()
	out, err := w.command(args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("tmux %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (w *tmux) close() { _ = w.command("kill-server").Run() }

// size changes the window's size.
func (w *tmux) size(columns, rows int) {
	w.t.Helper()
	w.do("resize-window", "-x", fmt.Sprint(columns), "-y", fmt.Sprint(rows))
}

// keys types keys by tmux's names; line types text and Enter.
func (w *tmux) keys(keys ...string) {
	w.t.Helper()
	w.do(append([]string{"send-keys"}, keys...)...)
}

func (w *tmux) line(text string) {
	w.t.Helper()
	w.do("send-keys", "-l", text)
	w.keys("Enter")
}

// screen is what the window shows, without blanks at the ends of lines.
func (w *tmux) screen() string {
	w.t.Helper()
	var lines []string
	for line := range strings.Lines(w.do("capture-pane", "-p")) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// await waits until the window shows what it should.
func (w *tmux) await(what string, holds func(screen string) bool) {
	w.t.Helper()
	var screen string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if screen = w.screen(); holds(screen) {
			return
		}
	}
	w.t.Fatalf("the window never shows %s; it shows\n%s", what, screen)
}

// awaitLine waits for a line that is exactly this.
func (w *tmux) awaitLine(text string) {
	w.t.Helper()
	w.await(fmt.Sprintf("the line %q", text), func(screen string) bool {
		return strings.Contains("\n"+screen+"\n", "\n"+text+"\n")
	})
}

func (w *tmux) awaitText(text string) {
	w.t.Helper()
	w.await(fmt.Sprintf("%q", text), func(screen string) bool { return strings.Contains(screen, text) })
}

// needPrograms skips a test without programs that a guest need not have.
func needPrograms(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			need.Skip(t, "%v", err)
		}
	}
}

// findVim returns a vim's name.
func findVim(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"vim", "vim.tiny"} {
		if _, err := exec.LookPath(name); err == nil {
			return name
		}
	}
	need.Skip(t, "no vim")
	return ""
}

// shell opens guestctl shell with a prompt that is known.
func (g *guestd) shell(t *testing.T, columns, rows int) *tmux {
	t.Helper()
	needPrograms(t, "tmux", "bash")
	w := g.openWindow(t, columns, rows, "exec", "-it", "-e", "PS1=ready:", "--", "bash", "--norc", "--noprofile")
	w.awaitLine("ready:")
	return w
}

// interrupt types Ctrl-C and waits for the prompt: the terminal throws away what was
// typed before the program has died of it.
func (w *tmux) interrupt() {
	w.t.Helper()
	w.keys("C-c")
	w.await("the prompt", func(screen string) bool { return strings.HasSuffix(screen, "^C\nready:") })
}

func TestShellInTmux(t *testing.T) {
	g := startGuestd(t)
	w := g.shell(t, 100, 30)
	w.line("stty size")
	w.awaitLine("30 100")
	w.line("sleep 1003")
	w.await("the command", func(string) bool { return len(running("sleep\x001003\x00")) > 0 })
	w.interrupt()
	w.line("echo code $?")
	w.awaitLine("code 130")
	w.line("sleep 1001")
	w.await("the job", func(string) bool { return len(running("sleep\x001001\x00")) == 1 })
	w.keys("C-z")
	w.await("the prompt", func(screen string) bool {
		return strings.Contains(screen, "Stopped") && strings.HasSuffix(screen, "\nready:")
	})
	w.line("fg")
	w.await("the job again", func(screen string) bool { return strings.HasSuffix(screen, "\nsleep 1001") })
	w.interrupt()
	w.line("echo code $?; jobs")
	w.await("the job's end", func(screen string) bool { return strings.HasSuffix(screen, "code 130\nready:") })
	w.size(120, 40)
	// The window's new size is told by a signal, which what is typed does not wait for.
	w.line(`until [ "$(stty size)" = "40 120" ]; do sleep 0.1; done; stty size`)
	w.awaitLine("40 120")
	w.line("exit 5")
	w.awaitLine("ended with 5")
}

// A shell's size is right before it prints anything.
func TestSizeIsRightFromTheFirstPrompt(t *testing.T) {
	needPrograms(t, "tmux")
	w := startGuestd(t).openWindow(t, 77, 19, "exec", "-t", "--", "stty", "size")
	w.awaitLine("19 77")
	w.awaitLine("ended with 0")
}

func TestScreenProgramsInTmux(t *testing.T) {
	needPrograms(t, "less", "top")
	vim := findVim(t)
	g := startGuestd(t)
	t.Run("vim", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "text")
		w := g.shell(t, 90, 25)
		w.line(vim + " -u NONE " + file)
		w.awaitText(`"` + file[:20])
		w.keys("i")
		w.do("send-keys", "-l", "grüße from vim")
		w.awaitText("grüße from vim")
		w.size(70, 20) // it paints itself anew, its last line at the bottom
		w.keys("Escape")
		w.do("send-keys", "-l", ":set number")
		w.keys("Enter")
		w.awaitText("1 grüße from vim")
		w.do("send-keys", "-l", ":wq")
		w.keys("Enter")
		w.await("the shell as it was", func(screen string) bool {
			return strings.HasSuffix(screen, "ready:") && !strings.Contains(screen, "grüße")
		})
		if text, err := os.ReadFile(file); err != nil || string(text) != "grüße from vim\n" {
			t.Errorf("vim wrote %q, %v", text, err)
		}
	})
	t.Run("less", func(t *testing.T) {
		w := g.shell(t, 80, 20)
		w.line("seq 1 3000 | LESS= less")
		w.await("its first page", func(screen string) bool { return strings.HasPrefix(screen, "1\n2\n3\n") })
		w.keys("G")
		w.await("its last page", func(screen string) bool { return strings.Contains(screen, "\n2999\n3000\n") })
		w.keys("q")
		w.await("the shell as it was", func(screen string) bool {
			return strings.HasSuffix(screen, "ready:") && !strings.Contains(screen, "2999")
		})
	})
	t.Run("top", func(t *testing.T) {
		w := g.shell(t, 100, 24)
		w.line("top -d 0.5")
		w.awaitText("%Cpu")
		w.size(100, 12)
		w.await("fewer lines", func(screen string) bool { return strings.Count(screen, "\n") < 12 && strings.Contains(screen, "PID") })
		w.keys("q")
		w.await("the prompt", func(screen string) bool { return strings.HasSuffix(screen, "ready:") })
	})
}

// TestViewersInTmux detaches from a program and comes back, more than once at a time: who
// comes later sees what the others see.
func TestViewersInTmux(t *testing.T) {
	needPrograms(t, "tmux")
	vim := findVim(t)
	g := startGuestd(t)
	file := filepath.Join(t.TempDir(), "text")
	out, err := exec.Command(filepath.Join(bin, "guestctl"), "--target", g.target(), "exec", "-d", "-t", "--", vim, "-u", "NONE", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	id := strings.TrimSpace(string(out))
	first := g.openWindow(t, 90, 24, "attach", id)
	first.awaitText("\n~\n~\n") // an empty file
	first.keys("i")
	for i := range 30 {
		first.line(fmt.Sprintf("line %d", i))
	}
	first.awaitText("line 29")
	first.size(72, 18)
	first.await("vim in fewer lines", func(screen string) bool {
		return strings.Contains(screen, "line 29") && !strings.Contains(screen, "line 12\n")
	})

	second := g.openWindow(t, 72, 18, "attach", id)
	same := func() {
		t.Helper()
		second.await("what the other shows", func(screen string) bool { return screen == first.screen() })
	}
	same()
	second.line("typed by the second")
	first.awaitText("typed by the second")
	same()
	first.close() // its guestctl is hung up, and the program goes on

	// Who has not seen the screen being painted sees it all the same.
	late := g.openWindow(t, 72, 18, "attach", "--from", "now", id)
	late.await("what the second shows", func(screen string) bool { return screen == second.screen() })
	late.keys("Enter")
	late.do("send-keys", "-l", "~.") // which is no line's start for vim, and one for guestctl
	late.awaitText("ended with 0")

	third := g.openWindow(t, 72, 18, "attach", id)
	third.await("what the second shows", func(screen string) bool { return screen == second.screen() })
	third.keys("Escape")
	third.do("send-keys", "-l", ":wq")
	third.keys("Enter")
	third.awaitLine("ended with 0")
	second.awaitLine("ended with 0")
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(text), "line 0\nline 1\n") || !strings.Contains(string(text), "typed by the second\n") {
		t.Errorf("vim wrote %q, %v", text, err)
	}
}

// running returns the processes with a command line, in which a NUL ends each argument.
func running(commandLine string) (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		if data, _ := os.ReadFile(file); string(data) == commandLine {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}
