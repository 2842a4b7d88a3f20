package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// duration is a flag that takes "500ms", "1.5s", "2m", or a number of seconds as timeout(1) does.
type duration struct {
	value time.Duration
	set   bool
}

func (d *duration) String() string {
	if !d.set {
		return ""
	}
	return d.value.String()
}

// Set implements pflag.Value.
func (d *duration) Set(text string) error {
	value, err := time.ParseDuration(text)
	if err != nil {
		seconds, numberErr := strconv.ParseFloat(text, 64)
		if numberErr != nil || math.IsNaN(seconds) || math.Abs(seconds) > math.MaxInt64/float64(time.Second) {
			return errors.New("want a duration like 500ms, 1.5s or 2m, or seconds")
		}
		value = time.Duration(seconds * float64(time.Second))
	}
	if value < 0 {
		return errors.New("a duration cannot be negative")
	}
	d.value, d.set = value, true
	return nil
}

// Type implements pflag.Value.
func (d *duration) Type() string { return "DURATION" }

// badFlag is an error of the flags' parser, told as guestctl tells its own.
func badFlag(cmd *cobra.Command, err error) error {
	invalid, is := errors.AsType[*pflag.InvalidValueError](err)
	if !is {
		return err
	}
	name := "--" + invalid.GetFlag().Name
	if slices.Contains(strings.Fields(cmd.Annotations[singleDashed]), invalid.GetFlag().Name) {
		name = name[1:]
	}
	problem := errors.Unwrap(invalid)
	if number, is := errors.AsType[*strconv.NumError](problem); is {
		problem = errors.New("want a number")
		if errors.Is(number, strconv.ErrRange) {
			problem = errors.New("the number is too large or too small")
		}
	}
	return fmt.Errorf("%s %s: %w", name, quoted(invalid.GetValue()), problem)
}

// excluding refuses two flags that make no sense together.
func excluding(cmd *cobra.Command, one, other string) error {
	if flags := cmd.Flags(); !flags.Changed(one) || !flags.Changed(other) {
		return nil
	}
	return fmt.Errorf("--%s and --%s exclude each other", one, other)
}

// addPlaceFlags adds the flags that say as whom, where and with what environment something runs.
func addPlaceFlags(flags *pflag.FlagSet, user, dir *string, env *[]string) {
	addUserFlag(flags, user)
	flags.StringVarP(dir, "workdir", "w", "", "run in `DIR` (default: the user's home)")
	flags.StringArrayVarP(env, "env", "e", nil, "set `NAME=VALUE`, or NAME to its value here; repeatable")
}

func addUserFlag(flags *pflag.FlagSet, user *string) {
	flags.StringVarP(user, "user", "u", "", "as `USER`: a name or uid, with :group or :gid if wanted")
}
