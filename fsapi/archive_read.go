package fsapi

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// archiver walks a tree on worker threads and reads what is to be packed.
type archiver struct {
	ctx      context.Context
	acc      account.Account
	filter   *filter
	root     string // absolute
	rootInfo Info

	file   int // the root, if it is a file; handed to the first batch
	single bool
	stack  []*archiveLevel
	links  map[fileID]string // where a file with several names is in the archive
}

// archiveLevel is one open folder.
type archiveLevel struct {
	dir   *dirReader
	below string // path from the root; "" for that itself
	// own is the folder's own entry as long as it is not packed.
	own *archiveItem
}

func (a *archiver) close() {
	for _, level := range a.stack {
		level.dir.close()
	}
	a.stack = nil
	if a.single && a.file >= 0 {
		unix.Close(a.file)
		a.file = -1
	}
}

// open opens the root; on a worker.
func (a *archiver) open() error {
	look, err := openAt(unix.AT_FDCWD, a.root, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	info, err := statAt(look, "")
	unix.Close(look)
	if err != nil {
		return err
	}
	if info.Type != TypeDirectory && info.Type != TypeRegular {
		return ErrNotSupportedType // opening it alone may have effects
	}
	fd, err := openAt(unix.AT_FDCWD, a.root, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	if info, err = statAt(fd, ""); err == nil {
		err = refuseOwnProc(fd, a.acc)
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	name(&info, a.root)
	a.rootInfo = info
	switch info.Type {
	case TypeRegular:
		a.single, a.file = true, fd
	case TypeDirectory:
		own := &archiveItem{name: "./", info: info, fd: -1}
		own.attrs, own.failure = readAttributes(fd)
		a.stack = append(a.stack, &archiveLevel{dir: newDirReader(fd), own: own})
	default:
		unix.Close(fd)
		return ErrNotSupportedType
	}
	return nil
}

// fill reads the next entries into an empty batch; on a worker. None means that
// all is read.
func (a *archiver) fill(b *archiveBatch) error {
	if a.single {
		return a.fillSingle(b)
	}
	if len(a.stack) == 1 {
		a.flush(b) // the root's own entry is there whatever the filter says
	}
	for len(a.stack) > 0 && !b.full() {
		if err := context.Cause(a.ctx); err != nil {
			return err
		}
		top := a.stack[len(a.stack)-1]
		entry, more, err := top.dir.next()
		switch {
		case err != nil && len(a.stack) == 1:
			return err
		case err != nil:
			a.leave(b, top.below, err)
			a.pop()
		case !more:
			a.pop()
		default:
			a.visit(b, top, entry)
		}
	}
	return nil
}

// fillSingle reads the root that is a file.
func (a *archiver) fillSingle(b *archiveBatch) error {
	if a.file < 0 {
		return nil
	}
	item := archiveItem{info: a.rootInfo, name: a.rootInfo.Name, fd: a.file}
	a.file = -1
	item.attrs, item.failure = readAttributes(item.fd)
	if err := b.read(&item); err != nil {
		unix.Close(item.fd)
		return err
	}
	b.add(item)
	return nil
}

func (a *archiver) pop() {
	top := len(a.stack) - 1
	a.stack[top].dir.close()
	a.stack = a.stack[:top]
}

// leave tells of an entry that is left out.
func (a *archiver) leave(b *archiveBatch, below string, err error) {
	item := archiveItem{failure: err, left: true, fd: -1}
	name(&item.info, join(a.root, below))
	b.add(item)
}

// flush packs the entries of the folders that are open.
func (a *archiver) flush(b *archiveBatch) {
	for _, level := range a.stack {
		if level.own != nil {
			b.add(*level.own)
			level.own = nil
		}
	}
}

// visit reads one entry if it is wanted, and enters it if it is a folder.
func (a *archiver) visit(b *archiveBatch, at *archiveLevel, entry dirEntry) {
	below := entry.name
	if at.below != "" {
		below = at.below + "/" + entry.name
	}
	if entry.kind == TypeUnknown {
		info, err := statAt(at.dir.fd, entry.name)
		if err != nil {
			a.leave(b, below, err)
			return
		}
		entry.kind = info.Type
	}
	take, enter := a.filter.Match(below, entry.kind == TypeDirectory)
	if !take && !enter {
		return
	}
	var item archiveItem
	var err error
	switch entry.kind {
	case TypeDirectory:
		err = a.enter(b, at.dir.fd, entry.name, below, take)
	case TypeRegular:
		item, err = a.readFile(b, at.dir.fd, entry.name, below)
	default:
		item, err = a.readSpecial(at.dir.fd, entry.name, below)
	}
	switch {
	case err != nil:
		a.leave(b, below, err)
	case entry.kind != TypeDirectory:
		a.flush(b)
		b.add(item)
	case take:
		a.flush(b)
	}
}

// enter goes into a folder, whose own entry is packed by flush.
func (a *archiver) enter(b *archiveBatch, dir int, base, below string, take bool) error {
	if len(a.stack) >= maxTreeDepth {
		return ErrTooDeep
	}
	fd, err := openSubfolder(dir, base)
	if errors.Is(err, unix.EACCES) && take {
		return a.packClosed(b, dir, base, below, err)
	}
	if err != nil {
		return err
	}
	item := a.item(below+"/", below)
	item.attrs, item.failure = readAttributes(fd)
	if item.info, err = statAt(fd, ""); err == nil {
		err = refuseOwnProc(fd, a.acc)
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	name(&item.info, join(a.root, below))
	a.stack = append(a.stack, &archiveLevel{dir: newDirReader(fd), below: below, own: &item})
	return nil
}

// packClosed packs a folder's own entry though the folder cannot be read.
func (a *archiver) packClosed(b *archiveBatch, dir int, base, below string, reason error) error {
	info, err := statAt(dir, base)
	if err != nil || info.Type != TypeDirectory {
		return reason
	}
	a.flush(b)
	item := a.item(below+"/", below)
	item.info, item.failure = info, reason
	name(&item.info, join(a.root, below))
	b.add(item)
	return nil
}

func (a *archiver) item(inArchive, below string) archiveItem {
	item := archiveItem{name: inArchive, fd: -1}
	name(&item.info, join(a.root, below))
	return item
}

// readFile reads a regular file, or opens it if it is not small.
func (a *archiver) readFile(b *archiveBatch, dir int, base, below string) (archiveItem, error) {
	const flags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_NOFOLLOW
	fd, err := openNoLinks(dir, base, flags, 0)
	if err != nil {
		return archiveItem{}, err
	}
	item := a.item(below, below)
	item.fd = fd
	path := item.info.Path
	if item.info, err = statAt(fd, ""); err == nil {
		err = refuseOwnProc(fd, a.acc)
	}
	name(&item.info, path)
	switch {
	case err != nil:
	case item.info.Type != TypeRegular:
		err = ErrNotSupportedType // it was replaced just now
	case a.known(&item):
		unix.Close(fd)
		item.fd = -1
		return item, nil
	default:
		item.attrs, item.failure = readAttributes(fd)
		err = b.read(&item)
	}
	if err != nil {
		unix.Close(fd)
		return archiveItem{}, err
	}
	a.remember(&item)
	return item, nil
}

// readSpecial reads what has no contents: a link, FIFO or device.
func (a *archiver) readSpecial(dir int, base, below string) (archiveItem, error) {
	item := a.item(below, below)
	path := item.info.Path
	var err error
	if item.info, err = statAt(dir, base); err != nil {
		return archiveItem{}, err
	}
	name(&item.info, path)
	switch item.info.Type {
	case TypeSymlink:
		if a.known(&item) {
			return item, nil
		}
		item.link, err = readLinkAt(dir, base)
	case TypeFIFO, TypeCharDevice, TypeBlockDevice:
		if a.known(&item) {
			return item, nil
		}
	default:
		err = ErrNotSupportedType
	}
	if err != nil {
		return archiveItem{}, err
	}
	a.remember(&item)
	return item, nil
}

// known makes an item another name of a file that is packed already, if it is
// one.
func (a *archiver) known(item *archiveItem) bool {
	if item.info.Links < 2 {
		return false
	}
	item.link, item.again = a.links[item.info.id()]
	return item.again
}

// remember takes note of a file that has more names.
func (a *archiver) remember(item *archiveItem) {
	if item.info.Links > 1 && len(a.links) < maxHardLinks {
		a.links[item.info.id()] = item.name
	}
}

// read takes a small file's contents into the batch, and closes it. The size is
// what was read, also where the file system tells another or none. A larger file
// stays open.
func (b *archiveBatch) read(item *archiveItem) error {
	if item.info.Size > smallFile {
		b.open++
		return nil
	}
	buf := b.arena[b.used : b.used+smallFile+1]
	n := 0
	for n < len(buf) && (n == 0 || int64(n) != item.info.Size) {
		got, err := retry(func() (int, error) { return unix.Pread(item.fd, buf[n:], int64(n)) })
		if err != nil {
			return err
		}
		if got == 0 {
			break
		}
		n += got
	}
	if n == len(buf) { // it has grown
		b.open++
		return nil
	}
	item.data = buf[:n:n]
	item.info.Size = int64(n)
	b.used += n
	unix.Close(item.fd)
	item.fd = -1
	return nil
}

// maxPackedAttributes bounds what one entry's attributes may take in an archive,
// where readers take 1 MiB at most (archive/tar).
const maxPackedAttributes = 512 << 10

// readAttributes reads a file's user attributes, as far as they fit.
func readAttributes(fd int) (map[string]string, error) {
	list, err := attributeNames(fd)
	if err != nil || list == "" {
		return nil, err
	}
	attrs, total := map[string]string{}, 0
	for attr := range strings.SplitSeq(strings.TrimSuffix(list, "\x00"), "\x00") {
		if !strings.HasPrefix(attr, "user.") {
			continue
		}
		value := make([]byte, maxAttribute)
		n, err := unix.Fgetxattr(fd, attr, value)
		if noAttribute(err) {
			continue
		}
		if err != nil {
			return attrs, err
		}
		total += len(attr) + n
		// A tar header ends an attribute's name at the first "=".
		if strings.Contains(attr, "=") || total > maxPackedAttributes {
			return attrs, ErrAttributesLeft
		}
		attrs[attr] = string(value[:n])
	}
	return attrs, nil
}
