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

// asksToEnd says whether a program that is sent the signal is to end.
func (s signalError) asksToEnd() bool {
	switch syscall.Signal(s) {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

// handledSignals end guestctl, or go to the command that it runs. One that guestctl's parent has set to
// be ignored, as nohup and `&` do, stays ignored.
var handledSignals = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// signalWatch hands signals to whoever cares for them at the moment. Its one goroutine ends with stop.
type signalWatch struct {
	incoming chan os.Signal
	done     chan struct{}

	mu      sync.Mutex // protects handler
	handler func(signalError)
}

// watchSignals hands all signals to handler, until redirect is called.
func watchSignals(handler func(signalError)) *signalWatch {
	// A closed stdout is an error of its Write, so that the command is told and everything is put
	// away. Ignoring the signal instead would be inherited by guestd.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	w := &signalWatch{incoming: make(chan os.Signal, 16), done: make(chan struct{}), handler: handler}
	for _, s := range handledSignals {
		if !signal.Ignored(s) {
			signal.Notify(w.incoming, s)
		}
	}
	go w.dispatch()
	return w
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

func (w *signalWatch) stop() {
	signal.Stop(w.incoming)
	close(w.incoming)
	<-w.done
}
