package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"guestd.internal/client"
)

// pictureTypes are the MIME types that count as pictures, the best first, with their files' endings.
var pictureTypes = []struct{ mime, ending string }{
	{"image/png", "png"},
	{"image/jpeg", "jpg"},
	{"image/gif", "gif"},
	{"image/webp", "webp"},
	{"image/svg+xml", "svg"},
	{"application/pdf", "pdf"},
}

// pictureView shows pictures in a terminal that can, and saves them elsewhere.
type pictureView struct {
	app    *app
	dir    string              // where they are saved
	inline func([]byte) string // shows a PNG; empty is one that it cannot show
	ask    func() bool         // whether the terminal shows sixels; nil where that is settled
}

// newPictureView makes a view that asks the terminal by means of input, before the first picture,
// where the environment does not tell what it can.
func newPictureView(a *app, saveDir string, input *lineInput) *pictureView {
	v := &pictureView{app: a, dir: saveDir}
	if saveDir != "" || !isTerminal(a.stdout) {
		return v
	}
	if v.inline = inlineProtocol(os.Getenv); v.inline == nil && canBeAsked(os.Getenv) {
		v.ask = input.asksForSixels
	}
	return v
}

// inlineProtocol is how the terminal shows a PNG; nil where it is not known to.
func inlineProtocol(getenv func(string) string) func([]byte) string {
	switch {
	case getenv("TMUX") != "" || strings.HasPrefix(getenv("TERM"), "screen"):
		return nil // a multiplexer does not pass them on
	case getenv("KITTY_WINDOW_ID") != "", getenv("TERM_PROGRAM") == "ghostty":
		return kittyPicture
	case getenv("TERM_PROGRAM") == "iTerm.app", getenv("TERM_PROGRAM") == "WezTerm":
		return iTermPicture
	case hasSixels(getenv("TERM")):
		return sixelPicture
	default:
		return nil
	}
}

// hasSixels knows the terminals that show sixels by the names that they go by in TERM.
func hasSixels(term string) bool {
	for _, name := range []string{"foot", "mlterm", "contour", "yaft"} {
		if term == name || strings.HasPrefix(term, name+"-") {
			return true
		}
	}
	return false
}

// kittyPicture is a PNG in kitty's graphics protocol, which takes at most 4,096 bytes of Base64 at
// a time.
func kittyPicture(png []byte) string {
	const most = 4096
	var b strings.Builder
	rest := base64.StdEncoding.EncodeToString(png)
	for head := "a=T,f=100,"; ; head = "" {
		piece := rest[:min(most, len(rest))]
		rest = rest[len(piece):]
		more := 0
		if rest != "" {
			more = 1
		}
		fmt.Fprintf(&b, "\x1b_G%sm=%d;%s\x1b\\", head, more, piece)
		if rest == "" {
			return b.String() + "\n"
		}
	}
}

// iTermPicture is a PNG in iTerm2's inline images protocol.
func iTermPicture(png []byte) string {
	return fmt.Sprintf("\x1b]1337;File=inline=1;size=%d:%s\a\n", len(png), base64.StdEncoding.EncodeToString(png))
}

// show shows or saves a result's best picture; false where it has none.
func (v *pictureView) show(r client.Result) (bool, error) {
	for _, kind := range pictureTypes {
		data, has := r.Part(kind.mime)
		if !has || len(data) == 0 {
			continue
		}
		if kind.ending == "png" {
			if shown := v.inlinePNG(data); shown != "" {
				_, err := v.app.stdout.WriteString(shown)
				return true, err
			}
		}
		name, err := savePicture(v.dir, kind.ending, data)
		if err != nil {
			return true, fmt.Errorf("saving a picture: %w", err)
		}
		v.app.notice("saved %s (%s)", name, byteCount(float64(len(data))))
		return true, nil
	}
	return false, nil
}

// inlinePNG is what shows a PNG in the terminal; empty where that cannot.
func (v *pictureView) inlinePNG(png []byte) string {
	if v.ask != nil {
		if v.ask() {
			v.inline = sixelPicture
		}
		v.ask = nil
	}
	if v.inline == nil {
		return ""
	}
	return v.inline(png)
}

// savePicture writes a new file under the first free name: picture-1.png, picture-2.png and so on.
func savePicture(dir, ending string, data []byte) (string, error) {
	const most = 100_000
	if dir != "" {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return "", err
		}
	}
	for n := 1; n <= most; n++ {
		name := filepath.Join(dir, fmt.Sprintf("picture-%d.%s", n, ending))
		file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = file.Write(data)
		return name, errors.Join(err, file.Close())
	}
	return "", fmt.Errorf("%s is full of pictures", quoted(dir))
}
