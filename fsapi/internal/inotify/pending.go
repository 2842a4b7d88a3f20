package inotify

import (
	"errors"
	"iter"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// readBuffer is how much is read with one system call. The largest event has
	// 16 bytes and a name of NAME_MAX with its NUL.
	readBuffer = 64 << 10
	// MaxPending is how many events are held at most: twice what the kernel holds
	// unless fs.inotify.max_queued_events says otherwise.
	MaxPending = 32 << 10
)

// ErrOverflow says that events were lost: the kernel's queue was full, or more
// than [MaxPending] would be held.
var ErrOverflow = errors.New("inotify events were lost")

// Pending holds the events of an [Instance] that were read and not yet taken,
// so that what is yet to come for a name can be asked before its turn.
type Pending struct {
	instance *Instance
	buf      []byte
	queue    []*Event // taken ones are nil
	held     int      // not nil in queue
	read     uint64   // events read, ever
	taken    uint64

	names map[int32]map[string][]*Event // structural ones, by watch and name, in order
	moves map[uint32]*Event             // IN_MOVED_TO, by cookie
}

// NewPending returns the instance's events, none of which is read yet.
func NewPending(instance *Instance) *Pending {
	return &Pending{
		instance: instance,
		names:    map[int32]map[string][]*Event{},
		moves:    map[uint32]*Event{},
	}
}

// Fill reads all events that have happened by now, without waiting. After
// [ErrOverflow] the instance is of no more use.
func (p *Pending) Fill() error {
	waiting, err := p.instance.waiting()
	if err != nil {
		return err
	}
	if waiting > 0 && p.buf == nil {
		p.buf = make([]byte, readBuffer)
	}
	for waiting > 0 {
		n, err := p.instance.read(p.buf)
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		if err := p.add(p.buf[:n], time.Now()); err != nil {
			return err
		}
		waiting -= n
	}
	return nil
}

// add takes over what was read at one time.
func (p *Pending) add(buf []byte, now time.Time) error {
	for len(buf) > 0 {
		event, rest, err := parse(buf)
		if err != nil {
			return err
		}
		if event.Mask&unix.IN_Q_OVERFLOW != 0 || p.held >= MaxPending {
			return ErrOverflow
		}
		buf = rest
		event.Read = now
		p.push(&event)
	}
	return nil
}

func (p *Pending) push(event *Event) {
	p.queue = append(p.queue, event)
	p.held++
	p.read++
	if event.Mask&Structural == 0 || event.Name == "" {
		return
	}
	names := p.names[event.Watch]
	if names == nil {
		names = map[string][]*Event{}
		p.names[event.Watch] = names
	}
	names[event.Name] = append(names[event.Name], event)
	if event.Mask&unix.IN_MOVED_TO != 0 {
		p.moves[event.Cookie] = event
	}
}

// Take takes the oldest event; false means that none is held.
func (p *Pending) Take() (Event, bool) {
	for len(p.queue) > 0 {
		event := p.queue[0]
		p.queue[0] = nil
		p.queue = p.queue[1:]
		if event == nil {
			continue // the second half of a rename, taken with the first
		}
		p.forget(event)
		return *event, true
	}
	p.queue = nil // begins anew at its array's start
	return Event{}, false
}

// TakeMovedTo takes the IN_MOVED_TO with the cookie, if it is held.
func (p *Pending) TakeMovedTo(cookie uint32) (Event, bool) {
	event, ok := p.moves[cookie]
	if !ok {
		return Event{}, false
	}
	for i := range p.queue {
		if p.queue[i] == event {
			p.queue[i] = nil
			break
		}
	}
	p.forget(event)
	return *event, true
}

// forget removes an event that leaves the queue from the indexes. It is the
// first of its name: the two halves of a rename stand together in both folders.
func (p *Pending) forget(event *Event) {
	p.held--
	p.taken++
	if p.moves[event.Cookie] == event {
		delete(p.moves, event.Cookie)
	}
	names := p.names[event.Watch]
	events := names[event.Name]
	for i := range events {
		if events[i] != event {
			continue
		}
		if len(events) > 1 {
			names[event.Name] = append(events[:i:i], events[i+1:]...)
		} else if delete(names, event.Name); len(names) == 0 {
			delete(p.names, event.Watch)
		}
		return
	}
}

// First is the mask of the oldest structural event held for a name of a watched
// folder, 0 if there is none: then the name has stood for the same file, or for
// none, from the event taken last until the last Fill.
func (p *Pending) First(wd int32, name string) uint32 {
	if events := p.names[wd][name]; len(events) > 0 {
		return events[0].Mask
	}
	return 0
}

// Firsts gives each name of a watched folder for which a structural event is
// held, with the oldest one's mask.
func (p *Pending) Firsts(wd int32) iter.Seq2[string, uint32] {
	return func(yield func(string, uint32) bool) {
		for name, events := range p.names[wd] {
			if !yield(name, events[0].Mask) {
				return
			}
		}
	}
}

// Busy says whether a structural event is held for any name of a watched folder.
func (p *Pending) Busy(wd int32) bool { return len(p.names[wd]) > 0 }

// Read counts the events that were ever read, Taken those of them that were
// taken: once Taken has reached what Read was, all of that time are handled.
func (p *Pending) Read() uint64 { return p.read }

// Taken counts the events that were taken; see [Pending.Read].
func (p *Pending) Taken() uint64 { return p.taken }
