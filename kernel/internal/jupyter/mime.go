package jupyter

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
)

// Part is one representation of a value.
type Part struct {
	MIME string
	// Data is text as UTF-8, JSON as JSON, anything else as its bytes.
	Data []byte
}

// Parts decodes a MIME bundle, sorted by type. JSON types keep their JSON; text
// is a JSON string or a list of them; binary types are base64 in a string and
// come out decoded. A value of a binary type that is not base64 is kept as the
// text that it is.
func Parts(bundle map[string]json.RawMessage) []Part {
	parts := make([]Part, 0, len(bundle))
	for mime, value := range bundle {
		parts = append(parts, Part{MIME: mime, Data: decodeValue(mime, value)})
	}
	slices.SortFunc(parts, func(a, b Part) int { return strings.Compare(a.MIME, b.MIME) })
	return parts
}

func decodeValue(mime string, value json.RawMessage) []byte {
	if isJSON(mime) {
		return compact(value)
	}
	text, ok := decodeText(value)
	if !ok {
		return compact(value)
	}
	if isText(mime) {
		return []byte(text)
	}
	if data, err := base64.StdEncoding.DecodeString(text); err == nil { // ignores line ends
		return data
	}
	return []byte(text)
}

func decodeText(value json.RawMessage) (string, bool) {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return text, true
	}
	var lines []string
	if json.Unmarshal(value, &lines) == nil {
		return strings.Join(lines, ""), true
	}
	return "", false
}

func compact(value json.RawMessage) []byte {
	var out bytes.Buffer
	if json.Compact(&out, value) != nil {
		return value
	}
	return out.Bytes()
}

// essence is the type without parameters, in lower case.
func essence(mime string) string {
	kind, _, _ := strings.Cut(mime, ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

func isJSON(mime string) bool {
	kind := essence(mime)
	return kind == "application/json" || strings.HasSuffix(kind, "+json")
}

// isText says whether a type's value is text as it stands. IPython's formatters
// encode bytes as base64 for whichever type they return them, and the ones
// below are those for which they return text.
func isText(mime string) bool {
	kind := essence(mime)
	switch kind {
	case "application/javascript", "application/ecmascript", "application/xml", "application/x-tex", "application/x-latex",
		"application/sql", "application/yaml":
		return true
	}
	return strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+xml") ||
		strings.HasSuffix(kind, "+yaml") || strings.HasPrefix(kind, "application/vnd.") && !isBinaryVendor(kind)
}

// isBinaryVendor knows the vendors' types that are archives or documents; the
// rest of application/vnd. is markup of front ends.
func isBinaryVendor(kind string) bool {
	for _, part := range []string{"openxmlformats", "ms-", "oasis.opendocument", "sqlite"} {
		if strings.Contains(kind, part) {
			return true
		}
	}
	return strings.HasSuffix(kind, "+zip")
}
