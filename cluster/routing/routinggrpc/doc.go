// Package routinggrpc sends each gRPC call to the server that owns its key. It has a resolver and a balancer
// for clients, and interceptors for servers. It is a separate module.
//
//	c, err := routing.Start(ctx, routing.Config{Agents: agents})
//	…
//	opts, err := routinggrpc.DialOptions(routinggrpc.Config{Table: routinggrpc.FromClient(c)})
//	…
//	conn, err := grpc.NewClient("roost:///", append(opts, grpc.WithTransportCredentials(creds))...)
//	…
//	reply, err := rooms.NewRoomsClient(conn).Join(routinggrpc.WithKey(ctx, "room-17"), request)
//
// Clients reach servers at the api_addr of their nodes. A process that embeds an agent can use the agent's
// table: see [TableOf].
//
// # In a server
//
// Tables differ for a moment after each change. So a server should reject calls for keys that it does not
// own, before their handlers run:
//
//	check := routinggrpc.Check{Owns: agent.Arrived}
//	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(check.Unary), grpc.ChainStreamInterceptor(check.Stream))
//
// A stream is only checked when it begins. If its key moves later, the stream continues until the server ends
// it, for example with the context of cluster.Agent.RunOwned.
//
// # Keys
//
// The key of a call is in its metadata, under [Header], unless you set Config.Key. If Config.Key returns ""
// without an error, any server may serve the call, and it goes to the owner of a random key. So do calls of
// gRPC's own services (/grpc.health.v1.Health/Check), which [Check] accepts.
//
// # Which calls are sent again
//
//   - A call has not been sent if the connection to its owner fails. It waits for the connection, or until the key has
//     another owner, for up to Config.RetryTimeout after the connection failed. Then it fails with UNAVAILABLE; with
//     grpc.WaitForReady it waits until its deadline.
//   - A call that a server rejects ([NotOwner]) is sent again, to the owner by then, for up to Config.RetryTimeout. That is
//     safe for each method: no handler has run. Streams are, too, with what the client has sent so far. gRPC does that, by
//     a retryPolicy, and keeps up to 256 kB of a call for it (grpc.MaxRetryRPCBufferSize).
//   - A call that breaks off when the server has it fails with UNAVAILABLE, and is not sent again: the server may have
//     done what was asked. A retryPolicy in Config.ServiceConfig changes that for methods that may run twice.
//
// With Config.Owners above 1, the next best member for a key gets its calls while the connection to the first
// one fails.
//
// # Connections
//
// A connection opens with the first call for a key of its member, or with grpc.ClientConn.Connect. It does
// not use a proxy. It is closed when its member has gone and its calls have ended. Calls to a vanished host
// end with their deadline, or earlier with grpc.WithKeepaliveParams.
//
// Certificates are verified against the host of each api_addr, or against the name in the target:
// roost:///media.example.org.
//
// # Errors
//
//	INTERNAL          the call has no key (from Config.Key)
//	INVALID_ARGUMENT  the same, from Check
//	OUT_OF_RANGE      each server that was asked for RetryTimeout has rejected the call (NotOwner)
//	UNAVAILABLE       no table yet, no owner, the owner was not reached, or the server broke off
package routinggrpc
