package client

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// Paths of the guest are strings whose bytes are carried exactly: absolute, or relative to the
// user's home. Every file call takes the user with whose rights it is made, as Cmd.User has it.

// FileOptions says as whom a file call is made; nil is the guest's default user.
type FileOptions struct {
	// User is a name, "name:group", a uid or "uid:gid"; empty is the guest's default user.
	User string
}

func (o *FileOptions) user() string {
	if o == nil {
		return ""
	}
	return o.User
}

// Stat describes a file; of a symbolic link what it leads to.
func (c *Client) Stat(ctx context.Context, path string, options *FileOptions) (*FileInfo, error) {
	return c.stat(ctx, &guestdv1.StatRequest{User: options.user(), Path: []byte(path), FollowLinks: true})
}

// Lstat describes a file; of a symbolic link the link itself.
func (c *Client) Lstat(ctx context.Context, path string, options *FileOptions) (*FileInfo, error) {
	return c.stat(ctx, &guestdv1.StatRequest{User: options.user(), Path: []byte(path)})
}

func (c *Client) stat(ctx context.Context, request *guestdv1.StatRequest) (*FileInfo, error) {
	if err := checkText("user", request.GetUser()); err != nil {
		return nil, err
	}
	response, err := c.files.Stat(ctx, request)
	if err != nil {
		return nil, fromCall(ctx, err)
	}
	return fileInfoOf(response.GetInfo()), nil
}

// ListOptions says what of a directory is listed; nil means its entries, all of them.
type ListOptions struct {
	// User is as in FileOptions.
	User string
	// Depth is how many levels are listed: 0 and 1 are the entries, 2 also those of subdirectories,
	// and so on.
	Depth int
	// SkipHidden leaves out entries whose name begins with a dot.
	SkipHidden bool
	// Include keeps only what matches one of these globs, Exclude leaves out what does.
	Include, Exclude []string
}

// List lists a directory, in no promised order; a directory comes before what is in it. An entry or
// subdirectory that could not be looked at comes as an *Error with its Path, and the listing goes
// on; after any other error it ends.
func (c *Client) List(ctx context.Context, path string, options *ListOptions) iter.Seq2[*FileInfo, error] {
	if options == nil {
		options = &ListOptions{}
	}
	return func(yield func(*FileInfo, error) bool) {
		if err := checkText("user", options.User); err != nil {
			yield(nil, err)
			return
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(context.Canceled)
		stream, err := c.files.List(ctx, &guestdv1.FileServiceListRequest{
			User: options.User, Path: []byte(path), Depth: uint32(max(0, options.Depth)), SkipHidden: options.SkipHidden,
			Include: byteStrings(options.Include), Exclude: byteStrings(options.Exclude),
		})
		for err == nil {
			var response *guestdv1.FileServiceListResponse
			if response, err = stream.Recv(); err == nil && !yieldEntries(response, yield) {
				return
			}
		}
		if !errors.Is(err, io.EOF) {
			yield(nil, fromCall(ctx, err))
		}
	}
}

func yieldEntries(response *guestdv1.FileServiceListResponse, yield func(*FileInfo, error) bool) bool {
	if f := response.GetFailure(); f != nil {
		return yield(nil, failureError(f))
	}
	for _, entry := range response.GetEntries().GetEntries() {
		if !yield(fileInfoOf(entry), nil) {
			return false
		}
	}
	return true
}

func failureError(f *guestdv1.FileFailure) error {
	e := &Error{Code: codes.Unknown, Path: string(f.GetPath()), Errno: errnoOfSymbol[f.GetErrno()], Message: f.GetMessage()}
	if name, known := guestdv1.ErrorReason_name[int32(f.GetReason())]; known && f.GetReason() != 0 {
		e.Reason = strings.TrimPrefix(name, "ERROR_REASON_")
	}
	return e
}

// MkdirOptions says how a directory is made; nil means all defaults.
type MkdirOptions struct {
	// User is as in FileOptions.
	User string
	// Mode is its mode; nil is 0755.
	Mode *fs.FileMode
}

// Mkdir makes a directory whose parent exists.
func (c *Client) Mkdir(ctx context.Context, path string, options *MkdirOptions) error {
	return c.mkdir(ctx, path, options, false)
}

// MkdirAll makes a directory and its missing parents, and is content with one that is there.
func (c *Client) MkdirAll(ctx context.Context, path string, options *MkdirOptions) error {
	return c.mkdir(ctx, path, options, true)
}

func (c *Client) mkdir(ctx context.Context, path string, options *MkdirOptions, parents bool) error {
	if options == nil {
		options = &MkdirOptions{}
	}
	if err := checkText("user", options.User); err != nil {
		return err
	}
	_, err := c.files.MakeDir(ctx, &guestdv1.MakeDirRequest{
		RequestId: newRequestID(), User: options.User, Path: []byte(path), Mode: optionalMode(options.Mode), Parents: parents,
	})
	return fromCall(ctx, err)
}

// Remove removes a file, a link or an empty directory.
func (c *Client) Remove(ctx context.Context, path string, options *FileOptions) error {
	return c.remove(ctx, &guestdv1.RemoveRequest{User: options.user(), Path: []byte(path)})
}

// RemoveAll removes a file, or a directory with all that is in it, and is content if there is none.
func (c *Client) RemoveAll(ctx context.Context, path string, options *FileOptions) error {
	return c.remove(ctx, &guestdv1.RemoveRequest{
		User: options.user(), Path: []byte(path), Recursive: true, IgnoreMissing: true,
	})
}

func (c *Client) remove(ctx context.Context, request *guestdv1.RemoveRequest) error {
	if err := checkText("user", request.GetUser()); err != nil {
		return err
	}
	request.RequestId = newRequestID()
	_, err := c.files.Remove(ctx, request)
	return fromCall(ctx, err)
}

// RenameOptions says how a file is moved; nil means all defaults.
type RenameOptions struct {
	// User is as in FileOptions.
	User string
	// NoReplace fails where the new path exists.
	NoReplace bool
}

// Rename gives a file or directory a new path, also on another file system.
func (c *Client) Rename(ctx context.Context, from, to string, options *RenameOptions) error {
	if options == nil {
		options = &RenameOptions{}
	}
	if err := checkText("user", options.User); err != nil {
		return err
	}
	_, err := c.files.Move(ctx, &guestdv1.MoveRequest{
		RequestId: newRequestID(), User: options.User,
		Source: []byte(from), Destination: []byte(to), NoReplace: options.NoReplace,
	})
	return fromCall(ctx, err)
}

// IsMissing tells whether an error means that a path does not exist, or cannot since something on
// its way is no directory.
func IsMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
