package kernel

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"guestd.internal/internal/account"
)

// State says what a context is doing.
type State int

// States.
const (
	NoKernel     State = iota // the next execution starts one
	Starting                  // a kernel is starting
	Idle                      // it waits for code
	Busy                      // an execution runs
	Interrupting              // an execution is being interrupted
)

// Info describes a context.
type Info struct {
	ID         string
	Language   string
	Name       string
	Labels     map[string]string // not to be changed
	User       string            // the account's name, or its uid
	Dir        string            // where it starts
	IsDefault  bool              // it is its language's default context
	Created    time.Time
	State      State
	Queued     int    // executions that wait
	Execution  string // the id of the running execution, or ""
	Generation uint64 // of the current or last kernel; 0 before the first
	PID        int    // of the kernel; 0 without
	// BackgroundBytes counts the text that came from earlier executions after
	// their end, from threads for example. It belongs to none.
	BackgroundBytes uint64
}

// static fills in what never changes.
func (id identity) static() Info {
	return Info{
		ID: id.id, Language: id.language, Name: id.name, Labels: id.labels, User: id.user, Dir: id.dir,
		IsDefault: id.isDefault, Created: id.created,
	}
}

// change is what of an Info is a change to tell a watcher.
type change struct {
	state      State
	queued     int
	execution  string
	generation uint64
	pid        int
}

func (i *Info) change() change { return change{i.State, i.Queued, i.Execution, i.Generation, i.PID} }

// info describes the context as the loop sees it.
func (c *codeContext) info() (info Info, err error) {
	err = c.call(func() { info = c.now() })
	return info, err
}

func (c *codeContext) now() Info {
	info := c.static()
	info.State = c.state()
	info.Queued = c.queued()
	info.Generation = c.generation
	info.BackgroundBytes = c.background
	if c.session != nil {
		info.PID = c.session.child.PID()
	}
	if c.run != nil {
		info.Execution = c.run.x.id
	}
	return info
}

func (c *codeContext) state() State {
	switch {
	case c.launched != nil:
		return Starting
	case c.run != nil && c.run.stopping != nil:
		return Interrupting
	case c.run != nil:
		return Busy
	case c.session == nil || c.death != nil || c.restarting:
		return NoKernel
	}
	return Idle
}

func (c *codeContext) watcher() (w *Watcher, err error) {
	err = c.call(func() { w = c.watch(c.now()) })
	return w, err
}

func (c *codeContext) account() account.Account { return c.launcher.acc }

func (c *codeContext) hasSurroundings() bool { return c.pythonic }

// MaxPage and DefaultPage are how many contexts a page of a list has at most, and
// unless asked otherwise.
const (
	MaxPage     = 1000
	DefaultPage = 100
)

// Filter chooses contexts and a page of them.
type Filter struct {
	Labels map[string]string // all of them, with these values
	States []State           // any of them; none is every state
	// Size is how many a page has, up to MaxPage; 0 is DefaultPage.
	Size int
	// Token is what the page before returned; "" is the first page.
	Token string
}

// Page returns a page of the contexts that match, oldest first, and the next
// page's token, "" on the last one. The error is *InvalidError.
func (cs *Contexts) Page(f Filter) (page []Info, next string, err error) {
	if f.Size < 0 || f.Size > MaxPage {
		return nil, "", &InvalidError{Field: "page_size", Problem: fmt.Sprintf("not between 0 and %d", MaxPage)}
	}
	if f.Size == 0 {
		f.Size = DefaultPage
	}
	var after uint64
	if f.Token != "" {
		if after, err = strconv.ParseUint(f.Token, 36, 64); err != nil {
			return nil, "", &InvalidError{Field: "page_token", Problem: "not one of a page before"}
		}
	}
	for _, c := range cs.inOrder() {
		about := c.about()
		if about.number <= after || !about.hasLabels(f.Labels) {
			continue
		}
		info, err := c.info()
		if err != nil || !f.matches(info.State) {
			continue // in the first case it has just been closed
		}
		if len(page) == f.Size {
			return page, next, nil
		}
		page = append(page, info)
		next = strconv.FormatUint(about.number, 36)
	}
	return page, "", nil
}

func (f *Filter) matches(state State) bool {
	return len(f.States) == 0 || slices.Contains(f.States, state)
}

func (id identity) hasLabels(labels map[string]string) bool {
	for key, value := range labels {
		if has, ok := id.labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// List returns what is known of all contexts, oldest first.
func (cs *Contexts) List() []Info {
	infos, _, _ := cs.Page(Filter{Size: MaxPage}) // MaxContexts fit on a page
	return infos
}

// Get returns what is known of a context. The error is ErrContextNotFound.
func (cs *Contexts) Get(id string) (Info, error) {
	c, err := cs.context(id)
	if err != nil {
		return Info{}, err
	}
	return c.info()
}

// inOrder returns the contexts, oldest first.
func (cs *Contexts) inOrder() []executor {
	cs.mu.Lock()
	contexts := slices.Collect(maps.Values(cs.contexts))
	cs.mu.Unlock()
	slices.SortFunc(contexts, func(a, b executor) int { return cmp.Compare(a.about().number, b.about().number) })
	return contexts
}
