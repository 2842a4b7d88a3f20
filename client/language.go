package client

import (
	"context"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// Language is one way to run code in the guest.
type Language struct {
	// Name is its name, Aliases are others that mean the same, and DisplayName is for people.
	Name        string
	Aliases     []string
	DisplayName string
	// Stateful: variables last from one execution to the next.
	Stateful bool
	// Available: it can be run now; otherwise UnavailableReason says why not and what to do.
	Available         bool
	UnavailableReason string
}

// Languages lists what a user can run; an empty user is the default one.
func (c *Client) Languages(ctx context.Context, user string) ([]Language, error) {
	if err := checkText("user", user); err != nil {
		return nil, err
	}
	response, err := c.code.ListLanguages(ctx, &guestdv1.ListLanguagesRequest{User: user})
	if err != nil {
		return nil, fromCall(ctx, err)
	}
	var languages []Language
	for _, l := range response.GetLanguages() {
		languages = append(languages, Language{
			Name: l.GetName(), Aliases: l.GetAliases(), DisplayName: l.GetDisplayName(), Stateful: l.GetStateful(),
			Available: l.GetAvailable(), UnavailableReason: l.GetUnavailableReason(),
		})
	}
	return languages, nil
}

// Completion is what may stand in code from Start to End, in code points.
type Completion struct {
	Matches    []string
	Start, End int
	// MetadataJSON is Jupyter's metadata object; empty is none.
	MetadataJSON []byte
}

// Complete completes code at a cursor, in code points, in a context. A kernel answers when it has run
// what it is running, so ctx should have a deadline.
func (c *Client) Complete(ctx context.Context, contextID, code string, cursor int) (*Completion, error) {
	for field, text := range map[string]string{"context_id": contextID, "code": code} {
		if err := checkText(field, text); err != nil {
			return nil, err
		}
	}
	response, err := c.code.Complete(ctx, &guestdv1.CompleteRequest{ContextId: contextID, Code: code, Cursor: cursorOf(cursor)})
	if err != nil {
		return nil, fromCall(ctx, err)
	}
	return &Completion{
		Matches: response.GetMatches(), Start: int(response.GetCursorStart()), End: int(response.GetCursorEnd()),
		MetadataJSON: response.GetMetadataJson(),
	}, nil
}

// Inspect tells about the name at a cursor, as Complete has it; detailed as "??" does. It is nil where
// nothing is known.
func (c *Client) Inspect(ctx context.Context, contextID, code string, cursor int, detailed bool) ([]Part, error) {
	for field, text := range map[string]string{"context_id": contextID, "code": code} {
		if err := checkText(field, text); err != nil {
			return nil, err
		}
	}
	response, err := c.code.Inspect(ctx, &guestdv1.InspectRequest{
		ContextId: contextID, Code: code, Cursor: cursorOf(cursor), Detailed: detailed,
	})
	if err != nil {
		return nil, fromCall(ctx, err)
	}
	return partsOf(response.GetParts()), nil
}

// cursorOf makes what is no place at all one that guestd refuses.
func cursorOf(cursor int) uint32 { return uint32(min(uint(cursor), 1<<32-1)) }
