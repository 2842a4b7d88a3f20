package main

import (
	"io/fs"
	"strconv"
	"time"

	"guestd.internal/client"
)

// jsonFile is a file in JSON. Times the file system does not know are left out.
type jsonFile struct {
	jsonPath
	Type   string     `json:"type"`
	Size   uint64     `json:"size"`
	Mode   string     `json:"mode"` // octal
	UID    uint32     `json:"uid"`
	GID    uint32     `json:"gid"`
	Owner  string     `json:"owner,omitempty"`
	Group  string     `json:"group,omitempty"`
	MTime  *time.Time `json:"modify_time,omitempty"`
	ATime  *time.Time `json:"access_time,omitempty"`
	CTime  *time.Time `json:"change_time,omitempty"`
	BTime  *time.Time `json:"birth_time,omitempty"`
	Inode  uint64     `json:"inode"`
	Device uint64     `json:"device"`
	Links  uint64     `json:"links"`
	Target *jsonPath  `json:"link_target,omitempty"`
}

func newJSONFile(i *client.FileInfo) jsonFile {
	file := jsonFile{
		jsonPath: newJSONPath(i.Path), Type: typeName(i.FileMode), Size: i.Bytes, Mode: octal(i.FileMode),
		UID: i.UID, GID: i.GID, Owner: i.Owner, Group: i.Group,
		MTime: known(i.Modified), ATime: known(i.Accessed), CTime: known(i.Changed), BTime: known(i.Born),
		Inode: i.Inode, Device: i.Device, Links: i.Links,
	}
	if i.LinkTarget != "" {
		target := newJSONPath(i.LinkTarget)
		file.Target = &target
	}
	return file
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// typeName names a file's type as stat(1) does.
func typeName(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "regular file"
	case mode.IsDir():
		return "directory"
	case mode&fs.ModeSymlink != 0:
		return "symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "fifo"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeCharDevice != 0:
		return "character device"
	case mode&fs.ModeDevice != 0:
		return "block device"
	default:
		return "unknown"
	}
}

// octal is a mode as chmod(1) takes it.
func octal(mode fs.FileMode) string {
	bits := uint64(mode.Perm())
	for flag, bit := range map[fs.FileMode]uint64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if mode&flag != 0 {
			bits |= bit
		}
	}
	return "0" + strconv.FormatUint(bits, 8)
}

// symbolic is a mode as ls -l shows it.
func symbolic(mode fs.FileMode) string {
	text := []byte("-rwxrwxrwx")
	for i := range 9 {
		if mode&(1<<uint(8-i)) == 0 {
			text[1+i] = '-'
		}
	}
	for _, special := range []struct {
		flag        fs.FileMode
		place       int
		with, alone byte
	}{{fs.ModeSetuid, 3, 's', 'S'}, {fs.ModeSetgid, 6, 's', 'S'}, {fs.ModeSticky, 9, 't', 'T'}} {
		if mode&special.flag == 0 {
			continue
		}
		if text[special.place] == 'x' {
			text[special.place] = special.with
		} else {
			text[special.place] = special.alone
		}
	}
	switch typeName(mode) {
	case "directory":
		text[0] = 'd'
	case "symbolic link":
		text[0] = 'l'
	case "fifo":
		text[0] = 'p'
	case "socket":
		text[0] = 's'
	case "character device":
		text[0] = 'c'
	case "block device":
		text[0] = 'b'
	}
	return string(text)
}

// ownerName and groupName are the names, or the numbers where there are none.
func ownerName(i *client.FileInfo) string { return nameOr(i.Owner, i.UID) }
func groupName(i *client.FileInfo) string { return nameOr(i.Group, i.GID) }

func nameOr(name string, id uint32) string {
	if name != "" {
		return name
	}
	return strconv.FormatUint(uint64(id), 10)
}
