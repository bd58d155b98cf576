package routinggrpc

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/metadata"
)

// Header is the metadata key that carries the key of a call. The name ends in -bin, so that gRPC can
// transport any bytes.
const Header = "roost-key-bin"

// WithKey returns a context for calls with a key. If ctx already has a key, WithKey replaces that key.
func WithKey(ctx context.Context, key string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, Header, key)
}

// Key returns the key of a call, given its context and its full method (/service/method). A call with the key
// "" can go to any server. If Key fails, the call fails with the text of the error.
type Key func(ctx context.Context, method string) (string, error)

// Outgoing reads the key from metadata that a client sends. If there are several values, Outgoing uses the
// last.
func Outgoing(name string) Key {
	return func(ctx context.Context, _ string) (string, error) {
		return last(metadata.ValueFromOutgoingContext(ctx, name), name)
	}
}

// Incoming reads the key from metadata that a server has received. If there are several values, Incoming uses
// the last.
func Incoming(name string) Key {
	return func(ctx context.Context, _ string) (string, error) {
		return last(metadata.ValueFromIncomingContext(ctx, name), name)
	}
}

func last(values []string, name string) (string, error) {
	if len(values) == 0 || values[len(values)-1] == "" {
		return "", fmt.Errorf("the call has no metadata %s, which names the key", name)
	}
	return values[len(values)-1], nil
}

// of returns the key of a call. Calls to gRPC's services for health, reflection and channelz have no key.
func (k Key) of(ctx context.Context, method string) (string, error) {
	if of, ok := strings.CutPrefix(method, "/grpc."); ok {
		switch service, _, _ := strings.Cut(of, "."); service {
		case "health", "reflection", "channelz":
			return "", nil
		}
	}
	return k(ctx, method)
}
