package routinggrpc

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/metadata"
)

// Header is the metadata that carries the key of a call. Its name ends in -bin, so gRPC transports any bytes.
const Header = "roost-key-bin"

// WithKey returns a context for calls with a key. A key that ctx has already is replaced.
func WithKey(ctx context.Context, key string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, Header, key)
}

// Key returns the key of a call, by its context and its full method (/service/method). A call with the key "" is for
// any server. An error ends the call, with its text.
type Key func(ctx context.Context, method string) (string, error)

// Outgoing takes the key from metadata that a client sends. Of several values the last one counts.
func Outgoing(name string) Key {
	return func(ctx context.Context, _ string) (string, error) {
		return last(metadata.ValueFromOutgoingContext(ctx, name), name)
	}
}

// Incoming takes the key from metadata that a server has received. Of several values the last one counts.
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

// of returns the key of a call. Calls of gRPC's services for health, reflection and channelz have none.
func (k Key) of(ctx context.Context, method string) (string, error) {
	if of, ok := strings.CutPrefix(method, "/grpc."); ok {
		switch service, _, _ := strings.Cut(of, "."); service {
		case "health", "reflection", "channelz":
			return "", nil
		}
	}
	return k(ctx, method)
}
