package client

import (
	"context"
	"io/fs"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// AttributeChanges says which of a file's attributes are changed, and as whom; what has its zero
// value stays as it is.
type AttributeChanges struct {
	// User is as in FileOptions.
	User string
	// NoFollow changes a symbolic link itself, of which only owner, group and times can be changed,
	// instead of what it leads to.
	NoFollow bool
	// Mode has the permission, set-uid, set-gid and sticky bits.
	Mode *fs.FileMode
	// Owner and Group are names or numbers.
	Owner, Group string
	// Modified and Accessed are as exact as the file system keeps them.
	Modified, Accessed time.Time
	// Xattrs are extended attributes to set, by their whole names ("user.origin"), each value at most
	// 64 KiB. RemoveXattrs are names of those to remove; one that is not there is fs.ErrNotExist.
	Xattrs       map[string][]byte
	RemoveXattrs []string
}

// SetAttributes changes attributes of a file, and describes it as it is afterwards. The first change
// that fails ends the call; those before it (owner and group come first, then mode, extended
// attributes and times) stay made.
func (c *Client) SetAttributes(ctx context.Context, path string, changes *AttributeChanges) (*FileInfo, error) {
	if changes == nil {
		changes = &AttributeChanges{}
	}
	request, err := changes.request(path)
	if err != nil {
		return nil, err
	}
	response, err := c.files.SetAttributes(ctx, request)
	if err != nil {
		return nil, fromCall(ctx, err)
	}
	return fileInfoOf(response.GetInfo()), nil
}

func (a *AttributeChanges) request(path string) (*guestdv1.SetAttributesRequest, error) {
	request := &guestdv1.SetAttributesRequest{
		RequestId: newRequestID(), User: a.User, Path: []byte(path), NoFollow: a.NoFollow, Mode: optionalMode(a.Mode),
		ModifyTime: optionalTime(a.Modified), AccessTime: optionalTime(a.Accessed),
		RemoveAttributes: byteStrings(a.RemoveXattrs),
	}
	for field, text := range map[string]string{"user": a.User, "owner": a.Owner, "group": a.Group} {
		if err := checkText(field, text); err != nil {
			return nil, err
		}
	}
	if a.Owner != "" {
		request.Owner = &a.Owner
	}
	if a.Group != "" {
		request.Group = &a.Group
	}
	for name, value := range a.Xattrs {
		request.SetAttributes = append(request.SetAttributes, &guestdv1.ExtendedAttribute{Name: []byte(name), Value: value})
	}
	return request, nil
}

// optionalTime is absent for the zero time.
func optionalTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
