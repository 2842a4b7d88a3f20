package inotify

import (
	"bytes"
	"encoding/binary"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Structural are the events that say that a name of a folder has come to stand
// for a file, or stands for none any more. The kernel tells those of one folder
// in the order in which they happened, since each holds the folder's lock.
const Structural = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO

// Event is one event.
type Event struct {
	Watch  int32  // which watch tells it; -1 for IN_Q_OVERFLOW
	Mask   uint32 // IN_…
	Cookie uint32 // what the two halves of a rename have in common
	Name   string // the entry of the watched folder; "" for the watched file itself
	Read   time.Time
}

// ErrMalformed says that the kernel's bytes make no sense.
var ErrMalformed = errors.New("malformed inotify event")

// parse cuts one event off buf, as struct inotify_event of inotify(7) has it.
func parse(buf []byte) (event Event, rest []byte, err error) {
	if len(buf) < unix.SizeofInotifyEvent {
		return Event{}, nil, ErrMalformed
	}
	event = Event{
		Watch:  int32(binary.NativeEndian.Uint32(buf[0:])),
		Mask:   binary.NativeEndian.Uint32(buf[4:]),
		Cookie: binary.NativeEndian.Uint32(buf[8:]),
	}
	length := uint64(binary.NativeEndian.Uint32(buf[12:]))
	buf = buf[unix.SizeofInotifyEvent:]
	if length > uint64(len(buf)) {
		return Event{}, nil, ErrMalformed
	}
	name := buf[:length]
	if end := bytes.IndexByte(name, 0); end >= 0 {
		name = name[:end]
	}
	if bytes.IndexByte(name, '/') >= 0 {
		return Event{}, nil, ErrMalformed
	}
	event.Name = string(name)
	return event, buf[length:], nil
}
