package agent

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"guestd.internal/agent/internal/replay"
)

const (
	// keepOutcome is how long the outcome of a change to files is remembered for
	// a repeated call, and maxOutcomes how many of each method's.
	keepOutcome = 10 * time.Minute
	maxOutcomes = 10_000
)

// outcome is what a call has answered, and when.
type outcome[T proto.Message] struct {
	answer T
	at     time.Time
}

// outcomes are those of one method.
type outcomes[T proto.Message] struct {
	table replay.Table[outcome[T]]
}

func newOutcomes[T proto.Message]() *outcomes[T] {
	return &outcomes[T]{replay.Table[outcome[T]]{
		Keep: func(o outcome[T]) bool { return time.Since(o.at) < keepOutcome },
		Max:  maxOutcomes,
	}}
}

// do does a change, or answers as the first call with the same request id.
func (o *outcomes[T]) do(ctx context.Context, id string, req proto.Message, change func() (T, error)) (T, error) {
	done, _, err := o.table.Do(ctx, id, req, func() (outcome[T], error) {
		answer, err := change()
		return outcome[T]{answer, time.Now()}, err
	})
	if errors.Is(err, replay.ErrMalformed) {
		err = invalid("request_id", err.Error())
	}
	return done.answer, err
}
