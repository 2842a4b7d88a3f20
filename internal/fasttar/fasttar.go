// Package fasttar writes tar streams as archive/tar does, byte for byte, with less
// work for what most entries of a tree are: small regular files with short names.
//
// For these archive/tar spends more time on the header, with its extension for the
// nanoseconds of the time, than the kernel takes to read the file. The package has no
// format of its own: whatever is not ordinary is left to archive/tar. It reads no
// files and starts no goroutine.
package fasttar

import (
	"archive/tar"
	"io"
	"io/fs"
	"path"
	"strconv"
)

// Writer is a tar.Writer with one more way to write a file.
type Writer struct {
	*tar.Writer
	to  io.Writer
	buf []byte
}

// NewWriter returns a Writer to w. Each file makes one or two writes, so w should
// have a buffer.
func NewWriter(w io.Writer) *Writer { return &Writer{Writer: tar.NewWriter(w), to: w} }

// WriteFile writes an entry with all its contents, which must be as long as the
// header says. The stream is the same as after WriteHeader and Write.
func (w *Writer) WriteFile(h *tar.Header, contents []byte) error {
	if !ordinary(h) || h.Size != int64(len(contents)) {
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err := w.Write(contents)
		return err
	}
	if err := w.Flush(); err != nil { // the padding of the entry before
		return err
	}
	w.buf = appendHeader(w.buf[:0], h)
	if _, err := w.to.Write(w.buf); err != nil {
		return err
	}
	if _, err := w.to.Write(contents); err != nil {
		return err
	}
	_, err := w.to.Write(zeros[:-len(contents)&(blockSize-1)])
	return err
}

const blockSize = 512

var zeros [blockSize]byte

// Where a header block has its fields, and how long they are (POSIX, ustar).
const (
	nameAt, nameSize         = 0, 100
	modeAt, modeSize         = 100, 8
	uidAt, gidAt, idSize     = 108, 116, 8
	sizeAt, timeAt, longSize = 124, 136, 12
	sumAt, sumSize           = 148, 8
	typeAt                   = 156
	magicAt                  = 257
	userAt, groupAt, whoSize = 265, 297, 32
	majorAt, minorAt         = 329, 337
)

// Numbers are octal digits with a NUL behind.
const (
	maxShort = 1 << (3 * (idSize - 1))
	maxLong  = 1 << (3 * (longSize - 1))
)

// ordinary says whether an entry is a regular file of which everything fits into a
// plain header but the nanoseconds of its time.
func ordinary(h *tar.Header) bool {
	seconds := h.ModTime.Unix()
	return h.Typeflag == tar.TypeReg && h.Format == tar.FormatPAX && h.PAXRecords == nil &&
		h.AccessTime.IsZero() && h.ChangeTime.IsZero() && h.Devmajor == 0 && h.Devminor == 0 &&
		h.Name != "." && fs.ValidPath(h.Name) && plain(h.Name, nameSize) &&
		h.Linkname == "" && plain(h.Uname, whoSize) && plain(h.Gname, whoSize) &&
		within(h.Mode, maxShort) && within(int64(h.Uid), maxShort) && within(int64(h.Gid), maxShort) &&
		within(h.Size, maxLong) && within(seconds, maxLong)
}

func within(n, limit int64) bool { return n >= 0 && n < limit }

// plain says whether a text is ASCII without NUL and fits.
func plain(text string, size int) bool {
	if len(text) > size {
		return false
	}
	for i := range len(text) {
		if text[i] == 0 || text[i] >= 0x80 {
			return false
		}
	}
	return true
}

// appendHeader appends the blocks before an ordinary file's contents.
func appendHeader(buf []byte, h *tar.Header) []byte {
	if nano := h.ModTime.Nanosecond(); nano != 0 {
		buf = appendNanoseconds(buf, h.Name, h.ModTime.Unix(), nano)
	}
	buf, b := appendBlock(buf)
	copy(b[nameAt:], h.Name)
	octal(b[modeAt:][:modeSize], h.Mode)
	octal(b[uidAt:][:idSize], int64(h.Uid))
	octal(b[gidAt:][:idSize], int64(h.Gid))
	octal(b[sizeAt:][:longSize], h.Size)
	octal(b[timeAt:][:longSize], h.ModTime.Unix())
	copy(b[userAt:], h.Uname)
	copy(b[groupAt:], h.Gname)
	octal(b[majorAt:][:idSize], 0)
	octal(b[minorAt:][:idSize], 0)
	seal(b, tar.TypeReg)
	return buf
}

// appendNanoseconds appends the extension that gives the next entry its exact time.
func appendNanoseconds(buf []byte, name string, seconds int64, nano int) []byte {
	buf, b := appendBlock(buf)
	folder, base := path.Split(name)
	copy(b[nameAt:][:nameSize], folder+"PaxHeaders.0/"+base)
	octal(b[modeAt:][:modeSize], 0)
	octal(b[uidAt:][:idSize], 0)
	octal(b[gidAt:][:idSize], 0)
	octal(b[timeAt:][:longSize], 0)

	buf, data := appendBlock(buf)
	b = buf[len(buf)-2*blockSize:][:blockSize] // which may have moved
	record := appendTimeRecord(data[:0], seconds, nano)
	octal(b[sizeAt:][:longSize], int64(len(record)))
	seal(b, tar.TypeXHeader)
	return buf
}

// appendTimeRecord appends "LENGTH mtime=SECONDS.NANOSECONDS\n", where the length
// counts itself; it always has two digits.
func appendTimeRecord(record []byte, seconds int64, nano int) []byte {
	record = append(record, "00 mtime="...)
	record = strconv.AppendInt(record, seconds, 10)
	record = append(record, '.')
	for unit := 100_000_000; nano > 0; unit /= 10 {
		record = append(record, '0'+byte(nano/unit))
		nano %= unit
	}
	record = append(record, '\n')
	record[0], record[1] = '0'+byte(len(record)/10), '0'+byte(len(record)%10)
	return record
}

// appendBlock appends a block of zeros and returns that, too.
func appendBlock(buf []byte) (longer, block []byte) {
	buf = append(buf, zeros[:]...)
	return buf, buf[len(buf)-blockSize:]
}

// seal completes a header block.
func seal(b []byte, kind byte) {
	b[typeAt] = kind
	copy(b[magicAt:], "ustar\x0000")
	sum := int64(sumSize * ' ') // what the field itself counts as
	for _, c := range b {
		sum += int64(c)
	}
	octal(b[sumAt:][:sumSize-1], sum)
	b[sumAt+sumSize-1] = ' '
}

// octal writes a number with leading zeros and a NUL behind.
func octal(field []byte, n int64) {
	field[len(field)-1] = 0
	for i := len(field) - 2; i >= 0; i-- {
		field[i] = '0' + byte(n&7)
		n >>= 3
	}
}
