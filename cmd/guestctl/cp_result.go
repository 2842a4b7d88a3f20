package main

import "guestd.internal/client"

// copied is what has come of copying a tree.
type copied struct {
	path           string // where the copy is
	entries, bytes uint64
	failures       []error
	failureCount   uint64
}

func (c *copied) add(failures []error, count uint64) {
	c.failures = append(c.failures, failures...)
	c.failureCount += count
}

// copiedOf is what guestd tells of a tree; nil is nothing.
func copiedOf(path string, s *client.TreeSummary) *copied {
	if s == nil {
		return &copied{path: path}
	}
	return &copied{path: path, entries: s.Entries, bytes: s.Bytes, failures: s.Failures, failureCount: s.FailureCount}
}

// jsonCopied is that in JSON.
type jsonCopied struct {
	jsonPath
	Entries  uint64 `json:"entries"`
	Bytes    uint64 `json:"bytes"`
	Failures uint64 `json:"failures"` // entries that were left out
}

// printCopied prints with --json what was copied; without it what cp tells is for people alone.
func (a *app) printCopied(c *copied) error {
	if !a.json {
		return nil
	}
	return a.printJSON(jsonCopied{newJSONPath(c.path), c.entries, c.bytes, c.failureCount})
}

// jsonWritten is a file that was written, in JSON.
type jsonWritten struct {
	jsonPath
	Bytes   uint64 `json:"bytes"`
	Created bool   `json:"created"`
	InPlace bool   `json:"in_place"` // it could not be replaced at once
}

func (a *app) printWritten(w *client.WriteResult) error {
	if !a.json {
		return nil
	}
	return a.printJSON(jsonWritten{newJSONPath(w.Info.Path), w.Bytes, w.Created, w.InPlace})
}
