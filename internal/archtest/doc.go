// Package archtest holds the tests that keep the module in shape: who may import
// whom, what the binaries contain and weigh, which packages say what they are,
// and how long a file or function may get. Each failure says why the rule is
// there.
//
// It has no other code. The tests run the go command on this module; they need
// no network once the module's dependencies are there.
//
// After a change of what the binaries depend on, which then shows up in review:
//
//	go test ./internal/archtest -run TestDependencyLists -update
package archtest
