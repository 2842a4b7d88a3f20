package fsapi

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Temporary names. Each path has a few of its own, so that whoever writes it
// next finds what a killed guestd left there. A lock (flock, which ends with the
// process) tells what is in use. What is left over for other paths of the folder
// stays until those are written: to find it each write would have to read the
// folder, which may be huge.
//
// In a folder that others may write to, they can take all of these names. Then
// the name is random, and left over it stays.
const (
	tempPrefix  = ".guestd-"
	tempSuffix  = ".tmp"
	tempSlots   = 64
	randomTemps = 16 // how many random names are tried; one is free
)

// tempName is the temporary name number slot for base. Its length does not
// depend on base's, which may be as long as names can be.
func tempName(base string, slot int) string {
	sum := sha256.Sum256([]byte(base))
	return tempPrefix + hex.EncodeToString(sum[:8]) + "-" + strconv.Itoa(slot) + tempSuffix
}

// randomTempName is a temporary name that nobody can take beforehand.
func randomTempName() string { return tempPrefix + strings.ToLower(rand.Text()) + tempSuffix }

// claimTemp calls create with one temporary name for base after the other, until
// it succeeds, and returns that name. create fails with EEXIST if the name is
// taken; it must lock what it creates. What nobody holds a lock on is left over
// and removed.
func claimTemp(dir int, base string, create func(name string) error) (string, error) {
	for slot := range tempSlots + randomTemps {
		name := tempName(base, slot)
		if slot >= tempSlots {
			name = randomTempName()
		}
		err := create(name)
		if errors.Is(err, unix.EEXIST) && removeLeftover(dir, name) {
			err = create(name)
		}
		if err == nil {
			return name, nil
		}
		if !errors.Is(err, unix.EEXIST) {
			return "", err
		}
	}
	return "", unix.EEXIST
}

// lockTemp locks a temporary file that was just made. EEXIST means that another
// writer took it for left over before it was locked.
func lockTemp(fd int) error {
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return unix.EEXIST
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Nlink == 0 {
		return unix.EEXIST
	}
	return nil
}

// removeLeftover removes a temporary file or folder that nobody uses any more. (A
// file may have the owner of the one that it was to replace.)
func removeLeftover(dir int, name string) bool {
	fd, err := openNoLinks(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	info, err := statAt(fd, "")
	if err != nil || unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false
	}
	switch info.Type {
	case TypeRegular:
		return unix.Unlinkat(dir, name, 0) == nil
	case TypeDirectory:
		return isTempFolder(fd) && removeTempFolder(context.Background(), place{dir, name}, fd) == nil
	}
	return false
}
