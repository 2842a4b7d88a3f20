package agent

import (
	"context"
	"slices"

	"google.golang.org/grpc"
)

// registrar puts services on an Agent's server whose calls with one request are
// refused before that is decoded where the token is wrong. The interceptor comes too
// late for that: a message of many empty parts takes fifty times its size in memory,
// which is not for strangers to ask for. Streams decode nothing before their
// interceptor lets them.
type registrar struct{ agent *Agent }

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(desc *grpc.ServiceDesc, service any) {
	guarded := *desc
	guarded.Methods = slices.Clone(desc.Methods)
	for i := range guarded.Methods {
		m := &guarded.Methods[i]
		m.Handler = r.guard("/"+desc.ServiceName+"/"+m.MethodName, m.Handler)
	}
	r.agent.server.RegisterService(&guarded, service)
}

func (r registrar) guard(method string, handle grpc.MethodHandler) grpc.MethodHandler {
	return func(service any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		growStack()
		if err := r.agent.token.check(ctx); err != nil {
			return nil, r.agent.newCall(ctx, method).finish(err, nil)
		}
		return handle(service, ctx, decode, intercept)
	}
}
