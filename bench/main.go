package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
)

func main() {
	if part := os.Getenv(partVariable); part != "" {
		os.Exit(play(part, os.Args[1:])) //nolint:forbidigo // main ends with the status of what it did
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code) //nolint:forbidigo // main ends with the status of what it did
}

// options are what the command line says.
type options struct {
	bin, fast string
	only      *regexp.Regexp
	sizeMiB   int64
	quick     bool
	json      bool
}

func parseFlags(args []string, stderr io.Writer) (options, error) {
	o := options{only: regexp.MustCompile("")}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.bin, "bin", "bin", "take guestd and guestctl from `DIR`")
	flags.StringVar(&o.fast, "fast", "/dev/shm", "put the files of file measures into `DIR`, on a tmpfs")
	flags.Func("run", "run only the measures whose names match `REGEXP`", func(text string) (err error) {
		o.only, err = regexp.Compile(text)
		return err
	})
	flags.Int64Var(&o.sizeMiB, "size", 1024, "move `MIB` mebibytes in measures of throughput")
	flags.BoolVar(&o.quick, "quick", false, "measure next to nothing: shows that the measures work")
	flags.BoolVar(&o.json, "json", false, "write JSON instead of a table")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || o.sizeMiB < 1 {
		flags.Usage()
		return o, errors.New("bad command line")
	}
	return o, nil
}

// run is main with its surroundings, and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseFlags(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	b, err := newBench(o)
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	defer os.RemoveAll(b.temp)
	report, err := b.measure(ctx, o.only, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
	}
	write := report.table
	if o.json {
		write = report.json
	}
	if err := errors.Join(err, write(stdout)); err != nil {
		return 1
	}
	return 0
}

// bench is what all measures share.
type bench struct {
	guestd, guestctl string // programs
	self             string // this program, which plays the floors' parts
	temp             string // a folder whose path is short enough for sockets
	fast             string // a folder on a tmpfs
	size             int64  // bytes that measures of throughput move
	scale            scale
}

// scale is how often, or with how many, each measure is done.
type scale struct {
	execs, commands       int // rounds of one exec, of one guestctl
	streams, copies       int // rounds of moving size bytes
	crowd, crowds         int // execs at once, rounds of that with one daemon
	daemons               int // that do so
	listed, lists         int // processes to list, rounds of that
	executions, prints    int
	contexts, alive       int // rounds of a new context, kernels at once
	starts, stats         int
	entries, folderRounds int // entries of a listed folder, rounds of that
	treeFiles, treeRounds int // files of a copied tree, rounds of that
}

var (
	fullScale = scale{execs: 400, commands: 40, streams: 5, copies: 5, crowd: 100, crowds: 12, daemons: 4, listed: 1000, lists: 40,
		executions: 200, prints: 3, contexts: 8, alive: 6, starts: 20, stats: 3000, entries: 100_000, folderRounds: 7,
		treeFiles: 10_000, treeRounds: 7}
	quickScale = scale{execs: 3, commands: 2, streams: 1, copies: 1, crowd: 5, crowds: 1, daemons: 1, listed: 5, lists: 2,
		executions: 2, prints: 1, contexts: 1, alive: 2, starts: 2, stats: 3, entries: 300, folderRounds: 1,
		treeFiles: 150, treeRounds: 1}
)

func newBench(o options) (*bench, error) {
	b := &bench{size: o.sizeMiB << 20, scale: fullScale}
	if o.quick {
		b.size, b.scale = min(b.size, 3<<20), quickScale
	}
	var err error
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}
	for name, program := range map[string]*string{"guestd": &b.guestd, "guestctl": &b.guestctl} {
		if *program, err = filepath.Abs(filepath.Join(o.bin, name)); err != nil {
			return nil, err
		}
		if _, err := os.Stat(*program); err != nil {
			return nil, fmt.Errorf("%w: run make build first, or name a folder with --bin", err)
		}
	}
	if b.temp, err = os.MkdirTemp("", "gb"); err != nil {
		return nil, err
	}
	b.fast = o.fast
	return b, nil
}

// measures are all that there is, in the order of the report.
var measures = []struct {
	name string
	run  func(context.Context, *bench) ([]result, error)
}{
	{"exec", measureExec},
	{"exec-crowd", measureCrowd},
	{"process-list", measureProcessList},
	{"stdout", measureStdout},
	{"file-read", measureFileRead},
	{"file-write", measureFileWrite},
	{"file-stat", measureStat},
	{"file-list", measureFileList},
	{"file-tree", measureFileTree},
	{"execute", measureExecute},
	{"print", measurePrint},
	{"context", measureContext},
	{"start", measureStart},
	{"size", measureSize},
}

// measure runs what only matches. An error tells everything that could not be
// measured; the report has the rest.
func (b *bench) measure(ctx context.Context, only *regexp.Regexp, progress io.Writer) (*report, error) {
	r := newReport()
	var errs []error
	for _, m := range measures {
		if !only.MatchString(m.name) {
			continue
		}
		fmt.Fprintln(progress, "measuring", m.name)
		results, err := m.run(ctx, b)
		r.add(m.name, results)
		if err != nil {
			errs = append(errs, fmt.Errorf("measuring %s: %w", m.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	r.finish()
	return r, errors.Join(errs...)
}
