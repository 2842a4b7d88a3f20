package fsapi

import (
	"archive/tar"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// extractItem is one entry to unpack.
type extractItem struct {
	name    string // clean and relative; "." is the folder itself
	kind    Type   // TypeUnknown for a hard link
	link    string // where a symbolic link leads; a hard link's other name, clean
	size    int64
	mode    uint32
	owner   entryOwner
	modTime time.Time
	device  uint64
	attrs   map[string]string
	data    []byte     // a small file's contents, in the batch
	large   *largeFile // a larger one's
	failure error      // it is not unpacked, only told
}

// item translates a tar header, and refuses what is not unpacked.
func (x *extractor) item(h *tar.Header) (extractItem, error) {
	clean, err := entryPath(h.Name)
	if err != nil {
		return extractItem{}, err
	}
	item := extractItem{name: clean, mode: uint32(h.Mode) & 0o1777, modTime: h.ModTime, owner: nobodyElse}
	if x.owners != nil {
		item.mode = uint32(h.Mode) & 0o7777
		item.owner = x.owners.of(h)
	}
	for record, value := range h.PAXRecords {
		if attr, is := strings.CutPrefix(record, attributeRecord); is && strings.HasPrefix(attr, "user.") {
			if item.attrs == nil {
				item.attrs = map[string]string{}
			}
			item.attrs[attr] = value
		}
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		item.kind, item.size = TypeRegular, h.Size
	case tar.TypeDir:
		item.kind = TypeDirectory
	case tar.TypeSymlink:
		item.kind, item.link = TypeSymlink, h.Linkname
	case tar.TypeLink:
		item.link, err = entryPath(h.Linkname)
	case tar.TypeFifo:
		item.kind = TypeFIFO
	case tar.TypeChar:
		item.kind, err = TypeCharDevice, x.mayMakeDevices()
	case tar.TypeBlock:
		item.kind, err = TypeBlockDevice, x.mayMakeDevices()
	default:
		err = ErrNotSupportedType
	}
	if err == nil && item.name == "." && item.kind != TypeDirectory {
		err = unix.EISDIR
	}
	item.device = unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor))
	return item, err
}

func (x *extractor) mayMakeDevices() error {
	if !x.opts.KeepOwners {
		return ErrNotSupportedType
	}
	return nil
}

// entryPath cleans an entry's name, which must lie below the folder.
func entryPath(raw string) (string, error) {
	if raw == "" {
		return "", unix.ENOENT
	}
	if len(raw) > maxPath {
		return "", unix.ENAMETOOLONG
	}
	if raw[0] == '/' {
		return "", ErrOutside
	}
	if strings.IndexByte(raw, 0) >= 0 {
		return "", unix.EINVAL
	}
	var parts []string
	for part := range strings.SplitSeq(raw, "/") {
		switch part {
		case "", ".":
		case "..":
			return "", ErrOutside
		default:
			parts = append(parts, part)
		}
	}
	if len(parts) > maxTreeDepth {
		return "", ErrTooDeep
	}
	if len(parts) == 0 {
		return ".", nil
	}
	return strings.Join(parts, "/"), nil
}

// cutEntry cuts a clean name into its folder ("." for the root) and its last
// name.
func cutEntry(clean string) (folder, base string) {
	cut := strings.LastIndexByte(clean, '/')
	if cut < 0 {
		return ".", clean
	}
	return clean[:cut], clean[cut+1:]
}

// extractBatch is what is put into place in one stay on a worker.
type extractBatch struct {
	items []extractItem
	arena []byte // small files' contents
	used  int
	extra int // bytes of names and attributes
}

// How much one batch holds: entries, bytes of small files and of names and
// attributes, each, and larger files that are open.
const (
	extractEntries = 256
	extractArena   = 1 << 20
	extractLarge   = 32
)

func newExtractBatch() *extractBatch { return &extractBatch{arena: make([]byte, extractArena)} }

func (b *extractBatch) fits(size int64) bool { return size <= int64(len(b.arena)-b.used) }

func (b *extractBatch) reserve(size int64) []byte {
	from := b.used
	b.used += int(size)
	return b.arena[from:b.used:b.used]
}

func (b *extractBatch) add(item extractItem) {
	b.items = append(b.items, item)
	b.extra += len(item.name) + len(item.link)
	for attr, value := range item.attrs {
		b.extra += len(attr) + len(value)
	}
	if item.large != nil {
		b.extra += extractArena / extractLarge
	}
}

func (b *extractBatch) full() bool {
	return len(b.items) >= extractEntries || b.extra >= extractArena
}
