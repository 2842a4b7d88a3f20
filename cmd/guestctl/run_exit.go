package main

import (
	"math/big"

	"guestd.internal/client"
)

// finishedError is what the code's end means for run's exit code. An exit that the code asked for,
// with sys.exit, is no error of it: run ends as python would.
func finishedError(f client.Finished, failure client.CodeError) error {
	switch f.Status {
	case client.ExecutionOK:
		return nil
	case client.ExecutionTimedOut:
		return exitError(exitTimeout)
	case client.ExecutionError:
		if failure.Name != systemExit {
			break
		}
		if code, _ := pythonExit(failure.Value); code != 0 {
			return exitError(code)
		}
		return nil
	}
	return exitError(exitCodeError)
}

// systemExit is the name of the error that a Python kernel makes of sys.exit.
const systemExit = "SystemExit"

// pythonExit is what python makes of sys.exit, whose argument's text is all that an event tells:
// the last byte of a number, 0 of nothing; anything else is a message to print, and 1.
func pythonExit(argument string) (code int, message string) {
	switch argument {
	case "", "None", "False":
		return 0, ""
	case "True":
		return 1, ""
	}
	n, isNumber := new(big.Int).SetString(argument, 10)
	switch {
	case !isNumber:
		return exitCodeError, argument
	case !n.IsInt64():
		return 0xff, "" // as if it were -1
	}
	return int(n.Int64() & 0xff), ""
}
