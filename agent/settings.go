package agent

import (
	"slices"
	"sync"

	"guestd.internal/internal/spawn"
)

// settings are what Configure changes while guestd runs. They are asked for at
// each start of a process.
type settings struct {
	template *spawn.EnvironmentFile

	// mu protects the following.
	mu          sync.Mutex
	defaultUser string
	environment []spawn.EnvVar // never changed in place
}

// DefaultUser is the configured default user, "" for guestd's own choice.
func (s *settings) DefaultUser() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.defaultUser
}

// Environment is what changes the built-in environment before a request does: the
// template's file, then what was configured. A file that cannot be read is left
// out; GetInfo says so.
func (s *settings) Environment() []spawn.EnvVar {
	template, _ := s.template.Vars()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Concat(template, s.environment)
}

// change sets what is not nil, all at once.
func (s *settings) change(defaultUser *string, environment *[]spawn.EnvVar) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if defaultUser != nil {
		s.defaultUser = *defaultUser
	}
	if environment != nil {
		s.environment = *environment
	}
}
