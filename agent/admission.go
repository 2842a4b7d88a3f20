package agent

import (
	"errors"
	"strings"
	"sync"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// errShuttingDown refuses new work, and ends what is left of calls.
var errShuttingDown = errors.New("guestd is shutting down")

// gate lets calls that do work in while it is open, and counts those inside. To
// let one in and to count it is one step, so that none starts after shut.
type gate struct {
	// mu protects the following.
	mu     sync.Mutex
	reason error // why nobody is let in; nil while open
	inside int
	empty  chan struct{} // made by shut, closed once nobody is inside
}

// enter lets a call in; it must leave again. The error is the reason given to
// shut.
func (g *gate) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reason != nil {
		return g.reason
	}
	g.inside++
	return nil
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.inside == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// shut lets nobody in from now on, and returns a channel that is closed once the
// last call has left. It is called once.
func (g *gate) shut(reason error) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reason = reason
	empty := make(chan struct{})
	if g.inside == 0 {
		close(empty)
	} else {
		g.empty = empty
	}
	return empty
}

// attending are the calls that only look after what is there already. They are
// taken for as long as there is a connection, so that clients can follow a
// shutdown to its end; all others are new work.
var attending = map[string]bool{
	guestdv1.ProcessService_Attach_FullMethodName:            true,
	guestdv1.ProcessService_WriteInput_FullMethodName:        true,
	guestdv1.ProcessService_CloseInput_FullMethodName:        true,
	guestdv1.ProcessService_Resize_FullMethodName:            true,
	guestdv1.ProcessService_Signal_FullMethodName:            true,
	guestdv1.ProcessService_Wait_FullMethodName:              true,
	guestdv1.ProcessService_Get_FullMethodName:               true,
	guestdv1.ProcessService_List_FullMethodName:              true,
	guestdv1.CodeService_AttachExecution_FullMethodName:      true,
	guestdv1.CodeService_AcknowledgeExecution_FullMethodName: true,
	guestdv1.CodeService_Interrupt_FullMethodName:            true,
	guestdv1.CodeService_ReplyInput_FullMethodName:           true,
	guestdv1.CodeService_GetContext_FullMethodName:           true,
	guestdv1.CodeService_ListContexts_FullMethodName:         true,
	guestdv1.CodeService_WatchContext_FullMethodName:         true,
	guestdv1.CodeService_DeleteContext_FullMethodName:        true,
	guestdv1.CodeService_ListLanguages_FullMethodName:        true,
}

// isWork says whether a method starts or changes something. SystemService, health
// and reflection do not.
func isWork(fullMethod string) bool {
	service, _, _ := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	switch service {
	case guestdv1.ProcessService_ServiceDesc.ServiceName,
		guestdv1.FileService_ServiceDesc.ServiceName,
		guestdv1.CodeService_ServiceDesc.ServiceName:
		return !attending[fullMethod]
	default:
		return fullMethod == guestdv1.SystemService_Tunnel_FullMethodName
	}
}
