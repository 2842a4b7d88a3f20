package agent

import (
	"slices"
	"sync"

	"guestd.internal/internal/spawn"
)

// settings are what Configure changes while guestd runs. They are asked for at
// each start of a process.
type settings struct {
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

// Environment is guestd's own layer of the environment.
func (s *settings) Environment() []spawn.EnvVar {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.environment)
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
