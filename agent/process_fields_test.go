package agent

import (
	"errors"
	"reflect"
	"testing"

	"guestd.internal/proc"
)

func TestEveryFieldOfASpecHasANameInTheAPI(t *testing.T) {
	for _, of := range []reflect.Type{reflect.TypeFor[proc.Spec](), reflect.TypeFor[proc.AttachOptions]()} {
		for i := range of.NumField() {
			if name := of.Field(i).Name; processFields[name] == "" {
				t.Errorf("%v.%s has no name in processFields: an error about it would name a field that no client knows", of, name)
			}
		}
	}
}

func TestErrorsNameTheFieldThatTheClientWrote(t *testing.T) {
	for in, want := range map[string]string{
		"Args":         "spec.arguments.values",
		"Args[3]":      "spec.arguments.values[3]",
		"Env[2].Name":  "spec.env[2].name",
		"Shell.Line":   "spec.shell.line",
		"ReaderID":     "reader.reader_id",
		"already.said": "already.said",
	} {
		err := inAPI(&proc.InvalidError{Field: in, Problem: "is wrong"})
		var api *invalidError
		var own *proc.InvalidError
		switch {
		case errors.As(err, &api) && api.field == want:
		case errors.As(err, &own) && own.Field == want:
		default:
			t.Errorf("%s: got %v, want the field %s", in, err, want)
		}
	}
}
