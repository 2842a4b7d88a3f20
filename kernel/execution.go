package kernel

import (
	"crypto/sha256"
	"time"

	"guestd.internal/internal/id"
	"guestd.internal/internal/spawn"
)

// Execution is one run of one piece of code. It goes on whether or not anybody
// reads its events. All methods may be called at any time.
type Execution struct {
	id        string
	contextID string
	log       *eventLog

	requestID   string
	fingerprint [sha256.Size]byte // of the request, with a requestID
	timeout     time.Duration
	allowStdin  bool
	code        string         // until it is sent; the context's
	env         []spawn.EnvVar // its own changes
	dir         string         // its own, absolute, or ""

	done  chan struct{} // closed after Finished is in the log
	ended time.Time     // when; valid once done is closed
	kept  int           // bytes that the finished log holds; Contexts'
}

func newExecution(contextID string, req *Request, cfg *Config) *Execution {
	x := &Execution{
		id:         id.New("x"),
		contextID:  contextID,
		log:        newEventLog(cfg.OutputLimit, cfg.ReconnectGrace),
		requestID:  req.RequestID,
		timeout:    req.timeout(),
		allowStdin: req.AllowStdin,
		code:       req.Code,
		done:       make(chan struct{}),
	}
	if req.RequestID != "" {
		x.fingerprint = req.fingerprint()
	}
	return x
}

// ID returns the execution's id, "x-…".
func (x *Execution) ID() string { return x.id }

// ContextID returns the id of the context that it runs in.
func (x *Execution) ContextID() string { return x.contextID }

// Attach adds a reader of the execution's events, which the caller closes. Errors
// are *InvalidError and *NumberError.
func (x *Execution) Attach(o ReaderOptions) (*EventReader, error) { return x.log.attach(o) }

// Acknowledge says that all events up to number have arrived at the reader with
// the given id, attached or on its way back. Errors are *InvalidError for an id
// that no reader has, and *NumberError for a number that was not sent yet.
func (x *Execution) Acknowledge(readerID string, number uint64) error {
	return x.log.acknowledge(readerID, number)
}

// Done is closed when the execution has finished.
func (x *Execution) Done() <-chan struct{} { return x.done }

// finish adds the last event. The context's actor calls it, once.
func (x *Execution) finish(f Finished) {
	x.code = ""
	x.log.append(f)
	x.ended = time.Now()
	close(x.done)
}
