package jupyter

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"time"
	"unicode/utf8"
)

const (
	// protocolVersion is what we announce; 5.3 is what every kernel in use speaks.
	protocolVersion = "5.3"

	// MaxHeader bounds the header and the parent header, in bytes. Real ones
	// have about 250.
	MaxHeader = 64 << 10

	// maxIdentities bounds the frames before the delimiter: an iopub message has
	// one topic, one to a DEALER has none.
	maxIdentities = 8

	// signedFrames are header, parent header, metadata and content.
	signedFrames = 4
)

var delimiter = []byte("<IDS|MSG>")

var (
	// ErrMalformed is wrapped by Decode's error for a message that is not one.
	ErrMalformed = errors.New("malformed Jupyter message")
	// ErrSignature is wrapped by Decode's error for a wrong signature.
	ErrSignature = errors.New("wrong signature of a Jupyter message")
)

// Header is a message's header or parent header.
type Header struct {
	MsgID    string `json:"msg_id"`
	Session  string `json:"session"`
	Username string `json:"username"`
	// Date is kept as text and never relied on: it is the guest's clock.
	Date    string `json:"date"`
	MsgType string `json:"msg_type"`
	Version string `json:"version"`
}

// Message is one decoded message. Content is checked to be JSON only when it is
// decoded into one of the content types.
type Message struct {
	Header  Header
	Parent  Header // zero when the message answers nothing
	Content json.RawMessage
	// Skipped is how many bytes of content were thrown away because they were
	// over the connection's limit. Content is empty then, and the signature,
	// which needs them, unchecked.
	Skipped uint64
}

// Codec signs and encodes what is sent, and checks and decodes what is
// received, under one connection's key. It is safe for concurrent use.
type Codec struct {
	key     []byte
	session string
}

// NewCodec returns a codec for the given key. An empty key turns signatures
// off, as the protocol has it.
func NewCodec(key string) *Codec {
	return &Codec{key: []byte(key), session: NewID()}
}

// NewID returns 32 random hexadecimal characters, fit for a message id.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, says its documentation
	return hex.EncodeToString(b[:])
}

// Encode returns the frames of a new request and its message id. parent is the
// message that it answers, or nil.
func (c *Codec) Encode(msgType string, content any, parent *Header) (id string, frames [][]byte, err error) {
	header := Header{
		MsgID:    NewID(),
		Session:  c.session,
		Username: "guestd",
		Date:     time.Now().UTC().Format(time.RFC3339Nano),
		MsgType:  msgType,
		Version:  protocolVersion,
	}
	parts := make([][]byte, 0, signedFrames)
	for _, part := range []any{header, parentOf(parent), struct{}{}, content} {
		data, err := json.Marshal(part)
		if err != nil {
			return "", nil, fmt.Errorf("encoding a %s: %w", msgType, err)
		}
		parts = append(parts, data)
	}
	frames = append([][]byte{delimiter, []byte(c.sign(parts))}, parts...)
	return header.MsgID, frames, nil
}

func parentOf(parent *Header) any {
	if parent == nil {
		return struct{}{}
	}
	return parent
}

func (c *Codec) sign(parts [][]byte) string {
	if len(c.key) == 0 {
		return ""
	}
	return hex.EncodeToString(digest(hmac.New(sha256.New, c.key), parts))
}

func digest(h hash.Hash, parts [][]byte) []byte {
	for _, part := range parts {
		h.Write(part)
	}
	return h.Sum(nil)
}

// Decode checks and decodes one message. skipped is how many bytes of its
// frames were thrown away (those frames are empty). The message keeps
// references to frames. Errors wrap ErrMalformed or ErrSignature.
func (c *Codec) Decode(frames [][]byte, skipped uint64) (*Message, error) {
	at := delimiterIndex(frames)
	if at < 0 {
		return nil, fmt.Errorf("%w: no delimiter in %d frames", ErrMalformed, len(frames))
	}
	frames = frames[at+1:]
	if len(frames) < 1+signedFrames {
		return nil, fmt.Errorf("%w: %d frames after the delimiter", ErrMalformed, len(frames))
	}
	signature, parts := frames[0], frames[1:1+signedFrames]
	if skipped == 0 && !c.verify(signature, parts) {
		return nil, ErrSignature
	}
	msg := &Message{Content: parts[3], Skipped: skipped}
	if err := decodeHeader(parts[0], &msg.Header); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if msg.Header.MsgType == "" {
		return nil, fmt.Errorf("%w: no message type", ErrMalformed)
	}
	if err := decodeHeader(parts[1], &msg.Parent); err != nil {
		return nil, fmt.Errorf("parent header: %w", err)
	}
	return msg, nil
}

// delimiterIndex finds the delimiter instead of assuming a number of
// identities: iopub_welcome for the empty topic has none.
func delimiterIndex(frames [][]byte) int {
	for i, frame := range frames[:min(len(frames), maxIdentities+1)] {
		if bytes.Equal(frame, delimiter) {
			return i
		}
	}
	return -1
}

func (c *Codec) verify(signature []byte, parts [][]byte) bool {
	if len(c.key) == 0 {
		return true
	}
	var got [sha256.Size]byte
	if hex.DecodedLen(len(signature)) != len(got) {
		return false
	}
	if _, err := hex.Decode(got[:], signature); err != nil {
		return false
	}
	return hmac.Equal(got[:], digest(hmac.New(sha256.New, c.key), parts))
}

func decodeHeader(data []byte, header *Header) error {
	switch {
	case len(data) > MaxHeader:
		return fmt.Errorf("%w: %d bytes", ErrMalformed, len(data))
	case !utf8.Valid(data):
		return fmt.Errorf("%w: not UTF-8", ErrMalformed)
	}
	if err := json.Unmarshal(data, header); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}
