package client

import (
	"crypto/rand"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// newRequestID names a call, so that guestd knows it again when it is repeated.
func newRequestID() string { return rand.Text() }

// timeOf gives the zero time for an absent timestamp.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// optionalDuration carries a duration of which zero is the default and a negative one means zero.
func optionalDuration(d time.Duration) *durationpb.Duration {
	switch {
	case d == 0:
		return nil
	case d < 0:
		return durationpb.New(0)
	default:
		return durationpb.New(d)
	}
}

// environment turns "NAME=value", and "NAME" alone for a variable to remove, into the proto's form.
func environment(env []string) []*guestdv1.EnvVar {
	vars := make([]*guestdv1.EnvVar, len(env))
	for i, entry := range env {
		name, value, set := strings.Cut(entry, "=")
		vars[i] = &guestdv1.EnvVar{Name: []byte(name), Value: []byte(value), Unset: !set}
	}
	return vars
}

func byteStrings(texts []string) [][]byte {
	out := make([][]byte, len(texts))
	for i, text := range texts {
		out[i] = []byte(text)
	}
	return out
}

func plainStrings(texts [][]byte) []string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = string(text)
	}
	return out
}

// checkLabels refuses labels that protobuf could not carry.
func checkLabels(field string, labels map[string]string) error {
	for key, value := range labels {
		if err := checkText(field, key); err != nil {
			return err
		}
		if err := checkText(field, value); err != nil {
			return err
		}
	}
	return nil
}
