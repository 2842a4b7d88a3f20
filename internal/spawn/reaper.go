package spawn

type reaper struct{}

func (s *Spawner) startReaper() error { return nil }
func (s *Spawner) pokeReaper()        {}
func (r *reaper) stop()               {}
