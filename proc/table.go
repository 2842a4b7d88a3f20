package proc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"guestd.internal/internal/account"
	"guestd.internal/internal/epoll"
	"guestd.internal/internal/outlog"
	"guestd.internal/internal/spawn"
)

const (
	// DefaultKeepFinished is how long a process stays listed after its end.
	DefaultKeepFinished = 10 * time.Minute
	// DefaultMaxFinished is how many processes stay listed after their end.
	DefaultMaxFinished = 1000

	// DefaultPage is how many processes List returns unless told otherwise.
	DefaultPage = 100
	// MaxPage is how many processes List returns at most.
	MaxPage = 1000
)

var (
	// ErrNotFound is returned for an id that is not listed.
	ErrNotFound = errors.New("no such process")
	// ErrClosed is returned for a start after Close.
	ErrClosed = errors.New("no process is started any more")
)

// Config configures a Table. Spawner and Accounts are needed.
type Config struct {
	// Spawner starts the processes; it is the caller's to close, after the Table.
	Spawner *spawn.Spawner
	// Accounts knows the guest's users.
	Accounts *account.DB
	// Logger receives what nobody is there to be told; nil discards it.
	Logger *slog.Logger
	// DefaultUser names who runs what names no user, "" for the accounts'
	// default; nil is the same. It is asked at each start.
	DefaultUser func() string
	// Environment is the layer between the template's and the request's; nil is
	// none. It is asked at each start.
	Environment func() []spawn.EnvVar
	// Budget bounds the memory of all logs together; nil does not.
	Budget *outlog.Budget
	// KeepFinished and MaxFinished are as above; 0 is the default.
	KeepFinished time.Duration
	MaxFinished  int
}

// Table knows all processes by their ids.
type Table struct {
	spawner      *spawn.Spawner
	accounts     *account.DB
	log          *slog.Logger
	defaultUser  func() string
	environment  func() []spawn.EnvVar
	budget       *outlog.Budget
	keepFinished time.Duration
	maxFinished  int

	captures captureStore
	starting sync.WaitGroup
	killOnce sync.Once
	killNow  chan struct{} // closed when Close waits no longer for SIGTERM

	// mu protects the following, and is never held while anything blocks.
	mu       sync.Mutex
	closed   bool
	number   uint64
	listed   map[string]*Process
	finished []finished            // listed ones that have ended, first to end first
	living   map[*Process]struct{} // whose goroutines run, listed or not
	watched  int                   // processes that are watched briefly
	sets     []*epoll.Set          // empty ones, for commands to come
	pipes    []pipe                // opened ahead for them
	expiry   *time.Timer           // for the first of finished; nil while there is none

	gathered      []*Process  // to be given back
	gather        *time.Timer // while something is gathered
	strays        []*Process  // of which something lives on
	strayTimer    *time.Timer // while there are strays
	strayInterval time.Duration
}

// NewTable returns an empty table.
func NewTable(cfg Config) *Table {
	t := &Table{
		spawner: cfg.Spawner, accounts: cfg.Accounts, log: cfg.Logger, budget: cfg.Budget,
		defaultUser: cfg.DefaultUser, environment: cfg.Environment,
		keepFinished: cfg.KeepFinished, maxFinished: cfg.MaxFinished,
		killNow: make(chan struct{}), strayInterval: minStrayInterval,
		listed: make(map[string]*Process), living: make(map[*Process]struct{}),
	}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	if t.defaultUser == nil {
		t.defaultUser = func() string { return "" }
	}
	if t.environment == nil {
		t.environment = func() []spawn.EnvVar { return nil }
	}
	if t.keepFinished == 0 {
		t.keepFinished = DefaultKeepFinished
	}
	if t.maxFinished == 0 {
		t.maxFinished = DefaultMaxFinished
	}
	t.openSets()
	t.openPipes()
	return t
}

// Start starts a detached process: nobody holds it back until a reader
// attaches, and its logs keep the newest output. The context is for the start
// alone. Errors: *InvalidError, *spawn.StartError, *account.UnknownUserError,
// account.ErrOtherUser, ErrClosed.
func (t *Table) Start(ctx context.Context, spec Spec) (*Process, error) {
	p, _, err := t.start(ctx, spec, nil, nil)
	return p, err
}

// Exec starts a process with a reader attached before its first byte of output. Without a
// terminal and stdin it returns when the process has ended or written something, or
// some milliseconds after its start: what ends that soon costs less then.
func (t *Table) Exec(ctx context.Context, spec Spec, attach AttachOptions) (*Process, *Attachment, error) {
	return t.start(ctx, spec, nil, &attach)
}

// Get returns the listed process with the id, or ErrNotFound.
func (t *Table) Get(id string) (*Process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p, ok := t.listed[id]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("%w: %q", ErrNotFound, id)
}

// Filter says which processes List returns.
type Filter struct {
	State  State
	Labels map[string]string // all of them, with these values
	// Size is how many a page has, up to MaxPage; 0 is DefaultPage.
	Size int
	// Token is what the page before returned; "" is the first page.
	Token string
}

// List returns a page of the processes that match, oldest first, and the next
// page's token, "" on the last one.
func (t *Table) List(f Filter) (page []Info, next string, err error) {
	if f.Size < 0 || f.Size > MaxPage {
		return nil, "", &InvalidError{"Size", fmt.Sprintf("is not between 0 and %d", MaxPage)}
	}
	if f.Size == 0 {
		f.Size = DefaultPage
	}
	var after uint64
	if f.Token != "" {
		if after, err = strconv.ParseUint(f.Token, 36, 64); err != nil {
			return nil, "", &InvalidError{"Token", "is not one of a page before"}
		}
	}
	list := slices.DeleteFunc(t.after(after), func(p *Process) bool { return !p.matches(f) })
	if len(list) > f.Size {
		list = list[:f.Size]
		next = strconv.FormatUint(list[f.Size-1].number, 36)
	}
	page = make([]Info, len(list))
	offsets := make([]StreamOffset, maxOutputs*len(list))
	for i, p := range list {
		p.describe(&page[i], offsets[:0:maxOutputs])
		offsets = offsets[maxOutputs:]
	}
	return page, next, nil
}

// after returns the listed processes behind a number, in order.
func (t *Table) after(number uint64) []*Process {
	t.mu.Lock()
	list := make([]*Process, 0, len(t.listed))
	for _, p := range t.listed {
		if p.number > number {
			list = append(list, p)
		}
	}
	t.mu.Unlock()
	slices.SortFunc(list, func(a, b *Process) int {
		if a.number < b.number {
			return -1
		}
		return 1
	})
	return list
}

func (p *Process) matches(f Filter) bool {
	for key, value := range f.Labels {
		if has, ok := p.spec.Labels[key]; !ok || has != value {
			return false
		}
	}
	if f.State == AnyState {
		return true
	}
	return (f.State == Ended) == p.hasEnded()
}

// admit counts a start in, so that Close waits for it, or refuses it.
func (t *Table) admit() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ErrClosed
	}
	t.starting.Add(1)
	return nil
}

// add lists a process that has started.
func (t *Table) add(p *Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.number++
	p.number = t.number
	t.listed[p.id] = p
	t.living[p] = struct{}{}
}
