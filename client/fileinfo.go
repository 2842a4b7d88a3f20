package client

import (
	"io/fs"
	"path"
	"time"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// FileInfo describes a file of the guest. It implements fs.FileInfo.
type FileInfo struct {
	// Path is absolute and cleaned; its bytes need not be UTF-8.
	Path string
	// Bytes is its size; 0 for most files of /proc and /sys whatever they hold.
	Bytes uint64
	// FileMode is its type and its permission, set-uid, set-gid and sticky bits.
	FileMode fs.FileMode
	// UID and GID own it; Owner and Group are their names, empty where they have none.
	UID, GID     uint32
	Owner, Group string
	// Modified, Accessed, Changed and Born are its times; the zero time where the file system does
	// not know one.
	Modified, Accessed, Changed, Born time.Time
	// Inode, Device and Links are as in stat(2).
	Inode, Device, Links uint64
	// LinkTarget is where a symbolic link leads, as stored.
	LinkTarget string
	// TargetMode is the type of what a symbolic link leads to; fs.ModeIrregular where it leads nowhere.
	TargetMode fs.FileMode
}

// Name is the last element of the path.
func (i *FileInfo) Name() string { return path.Base(i.Path) }

// Size is the size in bytes.
func (i *FileInfo) Size() int64 { return int64(i.Bytes) }

// Mode is the type and the permissions.
func (i *FileInfo) Mode() fs.FileMode { return i.FileMode }

// ModTime is the last change of the contents.
func (i *FileInfo) ModTime() time.Time { return i.Modified }

// IsDir tells whether it is a directory.
func (i *FileInfo) IsDir() bool { return i.FileMode.IsDir() }

// Sys is nil.
func (i *FileInfo) Sys() any { return nil }

// The set-uid, set-gid and sticky bits as chmod(2) has them, which fs.FileMode keeps elsewhere.
const (
	setUIDBit = 0o4000
	setGIDBit = 0o2000
	stickyBit = 0o1000
)

var modeOfType = map[guestdv1.FileType]fs.FileMode{
	guestdv1.FileType_FILE_TYPE_UNSPECIFIED:      fs.ModeIrregular,
	guestdv1.FileType_FILE_TYPE_REGULAR:          0,
	guestdv1.FileType_FILE_TYPE_DIRECTORY:        fs.ModeDir,
	guestdv1.FileType_FILE_TYPE_SYMLINK:          fs.ModeSymlink,
	guestdv1.FileType_FILE_TYPE_FIFO:             fs.ModeNamedPipe,
	guestdv1.FileType_FILE_TYPE_SOCKET:           fs.ModeSocket,
	guestdv1.FileType_FILE_TYPE_CHARACTER_DEVICE: fs.ModeDevice | fs.ModeCharDevice,
	guestdv1.FileType_FILE_TYPE_BLOCK_DEVICE:     fs.ModeDevice,
}

func typeMode(t guestdv1.FileType) fs.FileMode {
	if mode, known := modeOfType[t]; known {
		return mode
	}
	return fs.ModeIrregular
}

func fileMode(t guestdv1.FileType, bits uint32) fs.FileMode {
	mode := typeMode(t) | fs.FileMode(bits)&fs.ModePerm
	if bits&setUIDBit != 0 {
		mode |= fs.ModeSetuid
	}
	if bits&setGIDBit != 0 {
		mode |= fs.ModeSetgid
	}
	if bits&stickyBit != 0 {
		mode |= fs.ModeSticky
	}
	return mode
}

// modeBits is what chmod(2) takes of a mode.
func modeBits(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	if mode&fs.ModeSetuid != 0 {
		bits |= setUIDBit
	}
	if mode&fs.ModeSetgid != 0 {
		bits |= setGIDBit
	}
	if mode&fs.ModeSticky != 0 {
		bits |= stickyBit
	}
	return bits
}

func optionalMode(mode *fs.FileMode) *uint32 {
	if mode == nil {
		return nil
	}
	bits := modeBits(*mode)
	return &bits
}

func fileInfoOf(i *guestdv1.FileInfo) *FileInfo {
	if i == nil {
		return nil
	}
	return &FileInfo{
		Path: string(i.GetPath()), Bytes: i.GetSize(), FileMode: fileMode(i.GetType(), i.GetMode()),
		UID: i.GetUid(), GID: i.GetGid(), Owner: i.GetOwner(), Group: i.GetGroup(),
		Modified: timeOf(i.GetModifyTime()), Accessed: timeOf(i.GetAccessTime()),
		Changed: timeOf(i.GetChangeTime()), Born: timeOf(i.GetBirthTime()),
		Inode: i.GetInode(), Device: i.GetDevice(), Links: i.GetLinks(),
		LinkTarget: string(i.GetLinkTarget()), TargetMode: typeMode(i.GetTargetType()),
	}
}
