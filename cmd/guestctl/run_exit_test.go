package main

import (
	"testing"

	"guestd.internal/client"
)

func TestPythonExit(t *testing.T) {
	for argument, want := range map[string]struct {
		code    int
		message string
	}{
		"": {0, ""}, "None": {0, ""}, "0": {0, ""}, "3": {3, ""}, "255": {255, ""}, "256": {0, ""}, "-1": {255, ""},
		"True": {1, ""}, "False": {0, ""}, "1.5": {1, "1.5"}, "no luck": {1, "no luck"}, "99999999999999999999": {255, ""},
	} {
		if code, message := pythonExit(argument); code != want.code || message != want.message {
			t.Errorf("sys.exit(%s): %d, %q, want %d, %q", argument, code, message, want.code, want.message)
		}
	}
}

func TestFinishedError(t *testing.T) {
	left, failed := client.CodeError{Name: systemExit, Value: "3"}, client.CodeError{Name: "ZeroDivisionError", Value: "0"}
	for _, c := range []struct {
		status  client.ExecutionStatus
		failure client.CodeError
		want    int
	}{
		{client.ExecutionOK, client.CodeError{}, 0},
		{client.ExecutionError, failed, 1},
		{client.ExecutionError, left, 3},
		{client.ExecutionError, client.CodeError{Name: systemExit}, 0},
		{client.ExecutionTimedOut, left, 124},
		{client.ExecutionInterrupted, left, 1},
		{client.ExecutionKernelDied, client.CodeError{}, 1},
	} {
		if got := exitCode(t.Context(), finishedError(client.Finished{Status: c.status}, c.failure)); got != c.want {
			t.Errorf("%v after %+v: exit code %d, want %d", c.status, c.failure, got, c.want)
		}
	}
}
