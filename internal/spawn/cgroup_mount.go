package spawn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/id"
)

// parentPrefix begins the name of every Spawner's cgroup folder.
const parentPrefix = "guestd-"

var errNoCgroupMount = errors.New("no cgroup2 file system is mounted")

// openCgroupParent makes a folder of its own below root, or below the first
// place that takes one when root is "".
func openCgroupParent(root string) (*cgroupParent, error) {
	places := []string{root}
	if root == "" {
		places = cgroupPlaces()
	}
	err := errNoCgroupMount
	for _, place := range places {
		var parent *cgroupParent
		if parent, err = newCgroupParent(place); err == nil {
			return parent, nil
		}
	}
	return nil, err
}

// cgroupPlaces returns where a folder may be made: the top of each cgroup2 mount,
// which root may use, then guestd's own cgroup, which a supervisor may have
// delegated to its user.
func cgroupPlaces() []string {
	var places []string
	mounts := cgroupMounts()
	places = append(places, mounts...)
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return places
	}
	for line := range strings.Lines(string(data)) {
		own, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if !ok {
			continue
		}
		for _, mount := range mounts {
			places = append(places, filepath.Join(mount, own))
		}
	}
	return places
}

// cgroupMounts returns the mount points of cgroup2, also of one beside v1.
func cgroupMounts() []string {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	var mounts []string
	for line := range strings.Lines(string(data)) {
		// proc(5): "36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw"
		mount, source, ok := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if ok && len(fields) >= 5 && strings.HasPrefix(source, "cgroup2 ") {
			mounts = append(mounts, unescapeMount(fields[4]))
		}
	}
	return mounts
}

// unescapeMount undoes the octal escapes of mountinfo.
func unescapeMount(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// newCgroupParent makes and locks a folder below place, and removes what earlier
// instances left there.
func newCgroupParent(place string) (*cgroupParent, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(place, &fs); err != nil {
		return nil, &os.PathError{Op: "statfs", Path: place, Err: err}
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return nil, fmt.Errorf("%s is not on a cgroup2 file system", place)
	}
	removeLeftovers(place)
	for attempt := 1; ; attempt++ {
		p, err := makeCgroupParent(place)
		if errors.Is(err, errTaken) && attempt < parentAttempts {
			continue
		}
		if err != nil {
			return nil, err
		}
		p.start()
		return p, nil
	}
}

// parentAttempts is how many folders an instance makes until it has one. Another
// that starts at the same time takes one that is not locked yet for a leftover.
const parentAttempts = 20

var errTaken = errors.New("another instance has removed the cgroup folder")

func makeCgroupParent(place string) (*cgroupParent, error) {
	p := &cgroupParent{path: filepath.Join(place, id.New(strings.TrimSuffix(parentPrefix, "-")))}
	if err := os.Mkdir(p.path, 0o755); err != nil {
		return nil, err
	}
	if err := p.open(place); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.ENOENT) {
			return nil, errTaken
		}
		return nil, errors.Join(err, unix.Rmdir(p.path))
	}
	return p, nil
}

// open locks the folder against removeLeftovers, and finds out what children
// will have.
func (p *cgroupParent) open(place string) error {
	dir, err := os.Open(p.path)
	if err != nil {
		return err
	}
	p.dir = dir
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.Join(fmt.Errorf("locking %s: %w", p.path, err), dir.Close())
	}
	if err := unix.Access(filepath.Join(p.path, "cgroup.procs"), unix.W_OK); err != nil {
		return errors.Join(fmt.Errorf("%s takes no processes: %w", p.path, err), dir.Close())
	}
	p.kill = unix.Access(filepath.Join(p.path, "cgroup.kill"), unix.W_OK) == nil
	p.memory = enableMemory(place) && enableMemory(p.path)
	return nil
}

// enableMemory gives the folders below path the memory controller, which tells
// out-of-memory kills, if path has it to give.
func enableMemory(path string) bool {
	given := filepath.Join(path, "cgroup.subtree_control")
	if hasWord(given, "memory") {
		return true
	}
	return hasWord(filepath.Join(path, "cgroup.controllers"), "memory") && writeExisting(given, "+memory") == nil
}

func hasWord(path, word string) bool {
	data, err := os.ReadFile(path)
	return err == nil && slices.Contains(strings.Fields(string(data)), word)
}

// removeLeftovers removes folders of instances that are gone. A living one holds
// a lock on its own; one whose processes live on is left alone.
func removeLeftovers(place string) {
	for _, path := range subfolders(place) {
		if !strings.HasPrefix(filepath.Base(path), parentPrefix) {
			continue
		}
		dir, err := os.Open(path)
		if err != nil {
			continue
		}
		if unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = removeCgroup(path)
		}
		dir.Close()
	}
}
