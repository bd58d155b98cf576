package routinggrpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// NotOwner is the code of calls that a server has rejected because it does not own their keys. No handler has
// run. The code is OUT_OF_RANGE, because gRPC itself and most applications do not use it: see
// docs/dev/decisions/misdirected-grpc-calls.md.
const NotOwner = codes.OutOfRange

// Check rejects calls for keys that a server does not own. The methods Unary and Stream are interceptors.
type Check struct {
	// Owns reports whether this server owns a key, such as cluster.Agent.Arrived. Required.
	Owns func(key string) bool

	// Key returns the key of a call, like Config.Key for clients. Default Incoming(Header).
	Key Key
}

// Unary is an interceptor for grpc.ChainUnaryInterceptor.
func (c Check) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := c.check(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	resp, err := handler(ctx, req)
	if status.Code(err) == NotOwner {
		_ = grpc.SetTrailer(ctx, final())
	}
	return resp, err
}

// Stream is an interceptor for grpc.ChainStreamInterceptor.
func (c Check) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := c.check(stream.Context(), info.FullMethod); err != nil {
		return err
	}
	err := handler(srv, stream)
	if status.Code(err) == NotOwner {
		stream.SetTrailer(final())
	}
	return err
}

func (c Check) check(ctx context.Context, method string) error {
	of := c.Key
	if of == nil {
		of = Incoming(Header)
	}
	key, err := of.of(ctx, method)
	switch {
	case err != nil:
		return status.Error(codes.InvalidArgument, "routinggrpc: "+err.Error())
	case key != "" && !c.Owns(key):
		return status.Error(NotOwner, "routinggrpc: this server does not own the key of the call")
	}
	return nil
}

// final tells clients not to send a call again, because its handler has run. A server uses final if a handler
// fails with the same code as rejected calls.
func final() metadata.MD { return metadata.Pairs("grpc-retry-pushback-ms", "-1") }
