package main

import (
	"errors"
	"math"
	"strconv"
	"time"

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

// addPlaceFlags adds the flags that say as whom, where and with what environment something runs.
func addPlaceFlags(flags *pflag.FlagSet, user, dir *string, env *[]string) {
	addUserFlag(flags, user)
	flags.StringVarP(dir, "workdir", "w", "", "run in `DIR` (default: the user's home)")
	flags.StringArrayVarP(env, "env", "e", nil, "set `NAME=VALUE`, or NAME to its value here; repeatable")
}

func addUserFlag(flags *pflag.FlagSet, user *string) {
	flags.StringVarP(user, "user", "u", "", "as `USER`: a name or uid, with :group or :gid if wanted")
}
