package glob

import (
	"strings"
	"unicode/utf8"
)

// token is a part of a name's glob. It is small, since there is one for nearly
// each byte of a glob.
type token struct {
	set  *set // of a set
	char rune // of one character; beyond utf8.MaxRune, a byte that is none
	kind tokenKind
}

type tokenKind uint8

const (
	oneChar tokenKind = iota
	anyChar
	anyText
	charSet
)

// set is a set of characters.
type set struct {
	spans   []span
	classes []class
	negated bool // it is those that are not in it
}

// span is a range of characters, both ends included.
type span struct{ low, high rune }

type class func(rune) bool

// classes are those of POSIX, in the C locale.
var classes = map[string]class{
	"alnum":  func(c rune) bool { return isLetter(c) || isDigit(c) },
	"alpha":  isLetter,
	"blank":  func(c rune) bool { return c == ' ' || c == '\t' },
	"cntrl":  func(c rune) bool { return c < ' ' || c == 0x7f },
	"digit":  isDigit,
	"graph":  func(c rune) bool { return c > ' ' && c < 0x7f },
	"lower":  isLower,
	"print":  func(c rune) bool { return c >= ' ' && c < 0x7f },
	"punct":  func(c rune) bool { return c > ' ' && c < 0x7f && !isLetter(c) && !isDigit(c) },
	"space":  func(c rune) bool { return c == ' ' || c >= '\t' && c <= '\r' },
	"upper":  isUpper,
	"xdigit": func(c rune) bool { return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' },
}

func isDigit(c rune) bool  { return c >= '0' && c <= '9' }
func isLower(c rune) bool  { return c >= 'a' && c <= 'z' }
func isUpper(c rune) bool  { return c >= 'A' && c <= 'Z' }
func isLetter(c rune) bool { return isLower(c) || isUpper(c) }

// next cuts the first character off text, which is not empty. Bytes that belong
// to no character become numbers that no character has.
func next(text string) (char rune, size int) {
	if text[0] < utf8.RuneSelf {
		return rune(text[0]), 1
	}
	char, size = utf8.DecodeRuneInString(text)
	if char == utf8.RuneError && size == 1 {
		return utf8.MaxRune + 1 + rune(text[0]), 1
	}
	return char, size
}

// parse compiles the glob of one name.
func parse(text string) (name, error) {
	tokens := name{} // never nil, which would be "**"
	for text != "" {
		char, size := next(text)
		text = text[size:]
		switch char {
		case '*':
			if n := len(tokens); n == 0 || tokens[n-1].kind != anyText {
				tokens = append(tokens, token{kind: anyText})
			}
		case '?':
			tokens = append(tokens, token{kind: anyChar})
		case '[':
			set, rest, err := parseSet(text)
			if err != nil {
				return nil, err
			}
			tokens, text = append(tokens, token{kind: charSet, set: set}), rest
		case '\\':
			if text == "" {
				return nil, ErrSyntax
			}
			char, size = next(text)
			text = text[size:]
			fallthrough
		default:
			tokens = append(tokens, token{kind: oneChar, char: char})
		}
	}
	return tokens, nil
}

// parseSet compiles what follows a "[".
func parseSet(text string) (_ *set, rest string, err error) {
	parsed := &set{}
	if text != "" && (text[0] == '!' || text[0] == '^') {
		parsed.negated, text = true, text[1:]
	}
	for first := true; ; first = false {
		switch {
		case text == "":
			return nil, "", ErrSyntax
		case text[0] == ']' && !first:
			return parsed, text[1:], nil
		case strings.HasPrefix(text, "[:"):
			name, after, ok := strings.Cut(text[2:], ":]")
			class, known := classes[name]
			if !ok || !known {
				return nil, "", ErrSyntax
			}
			parsed.classes, text = append(parsed.classes, class), after
			continue
		}
		var s span
		if s.low, text, err = setChar(text); err != nil {
			return nil, "", err
		}
		s.high = s.low
		if len(text) > 1 && text[0] == '-' && text[1] != ']' {
			if s.high, text, err = setChar(text[1:]); err != nil {
				return nil, "", err
			}
		}
		if s.high < s.low {
			return nil, "", ErrSyntax
		}
		parsed.spans = append(parsed.spans, s)
	}
}

// setChar cuts one character of a set off text.
func setChar(text string) (char rune, rest string, err error) {
	if text != "" && text[0] == '\\' {
		text = text[1:]
	}
	if text == "" {
		return 0, "", ErrSyntax
	}
	char, size := next(text)
	return char, text[size:], nil
}

// matches says whether the token, which is for one character, matches it.
func (t *token) matches(char rune) bool {
	switch t.kind {
	case oneChar:
		return t.char == char
	case anyChar:
		return true
	case anyText:
		return false
	}
	return t.set.has(char) != t.set.negated
}

// has says whether a character is among those that the set names.
func (s *set) has(char rune) bool {
	for _, span := range s.spans {
		if span.low <= char && char <= span.high {
			return true
		}
	}
	for _, in := range s.classes {
		if in(char) {
			return true
		}
	}
	return false
}

// match matches the whole of text. When it goes wrong the last "*" takes one
// character more.
func (n name) match(text string) bool {
	at, retryAt, retryText := 0, -1, ""
	for {
		switch {
		case at < len(n) && n[at].kind == anyText:
			at++
			if at == len(n) {
				return true
			}
			retryAt, retryText = at, text
			continue
		case at == len(n) && text == "":
			return true
		case at < len(n) && text != "":
			if char, size := next(text); n[at].matches(char) {
				at, text = at+1, text[size:]
				continue
			}
		}
		if retryAt < 0 || retryText == "" {
			return false
		}
		_, size := next(retryText)
		retryText = retryText[size:]
		at, text = retryAt, retryText
	}
}
