package kernel

import (
	"fmt"
	"io"
	"os"
	"testing"

	"guestd.internal/internal/account"
	"guestd.internal/internal/spawn"
)

// BenchmarkExecute is the time from Execute to the last event of 1+1 in a warm
// kernel.
func BenchmarkExecute(b *testing.B) {
	spawner, err := spawn.New(spawn.Config{})
	if err != nil {
		b.Fatal(err)
	}
	state, err := os.MkdirTemp(stateRoot, "b")
	if err != nil {
		b.Fatal(err)
	}
	cs, err := New(Config{Spawner: spawner, Accounts: account.Open(""), StateDir: state, DefaultUser: func() string { return fmt.Sprint(os.Getuid()) }})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _, _ = cs.Close(b.Context()), spawner.Close() }()
	for b.Loop() {
		x, err := cs.Execute(b.Context(), Request{Code: "1+1"})
		if err != nil {
			b.Fatal(err)
		}
		r := events(b, x, 0)
		for err == nil {
			_, err = r.Next(b.Context())
		}
		r.Close()
		if err != io.EOF {
			b.Fatal(err)
		}
	}
}
