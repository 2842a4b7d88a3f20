package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// signalError is a signal that asked guestctl to end.
type signalError syscall.Signal

func (s signalError) Error() string { return syscall.Signal(s).String() }

// endingSignals ask a program to end. One that guestctl's parent has set to be ignored, as nohup
// and `&` do, stays ignored.
var endingSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

// forwardedSignals are those that a command is sent when guestctl gets them while it runs.
var forwardedSignals = append([]os.Signal{syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}, endingSignals...)

// signalWatch hands signals to whoever cares for them at the moment. Its one goroutine ends with stop.
type signalWatch struct {
	incoming chan os.Signal
	done     chan struct{}

	mu      sync.Mutex // protects handler
	handler func(signalError)
}

func watchSignals() *signalWatch {
	// A closed stdout is an error of its Write, so that the command is told and everything is put
	// away. Ignoring the signal instead would be inherited by guestd.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	w := &signalWatch{incoming: make(chan os.Signal, 16), done: make(chan struct{}), handler: func(signalError) {}}
	w.listen(endingSignals)
	go w.dispatch()
	return w
}

func (w *signalWatch) listen(signals []os.Signal) {
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(w.incoming, s)
		}
	}
}

func (w *signalWatch) dispatch() {
	defer close(w.done)
	for s := range w.incoming {
		w.mu.Lock()
		handler := w.handler
		w.mu.Unlock()
		if number, ok := s.(syscall.Signal); ok {
			handler(signalError(number))
		}
	}
}

// redirect hands signals to another handler until restore is called.
func (w *signalWatch) redirect(handler func(signalError)) (restore func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.handler
	w.handler = handler
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.handler = before
	}
}

// forward is redirect for all signals that a running command is sent.
func (w *signalWatch) forward(handler func(signalError)) (restore func()) {
	w.listen(forwardedSignals)
	return w.redirect(handler)
}

func (w *signalWatch) stop() {
	signal.Stop(w.incoming)
	close(w.incoming)
	<-w.done
}
