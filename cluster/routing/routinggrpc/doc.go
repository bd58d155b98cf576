// Package routinggrpc sends each gRPC call to the server that owns its key. The package contains a resolver
// and a balancer for clients, and interceptors for servers. The package is a separate module.
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
// Tables briefly differ after each change. A server should therefore reject calls for keys that it does not
// own, before their handlers run:
//
//	check := routinggrpc.Check{Owns: agent.Arrived}
//	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(check.Unary), grpc.ChainStreamInterceptor(check.Stream))
//
// A server checks a stream only when it starts. If the key moves later, the stream continues until the server
// ends it, for example with the context of cluster.Agent.RunOwned.
//
// # Keys
//
// The key of a call is in its metadata, under [Header], unless you set Config.Key. If Config.Key returns ""
// without an error, any server may serve the call, and the call goes to the owner of a random key. Calls to
// gRPC's own services, such as /grpc.health.v1.Health/Check, also go to the owner of a random key. [Check]
// accepts calls to gRPC's own services.
//
// # Which calls are sent again
//
//   - If the connection to the owner fails, the call has not been sent. The call waits until the connection
//     is ready or the key has another owner, for up to Config.RetryTimeout after the connection failed. Then
//     the call fails with UNAVAILABLE. With grpc.WaitForReady, the call waits until its deadline.
//   - If a server rejects a call ([NotOwner]), gRPC sends the call again to the current owner, for up to
//     Config.RetryTimeout. That is safe for every method, because no handler has run. Streams are also sent
//     again, with everything that the client has sent until then. gRPC does this because of a retryPolicy,
//     and keeps up to 256 kB of a call for it (grpc.MaxRetryRPCBufferSize).
//   - If a call breaks off after the server has received it, the call fails with UNAVAILABLE and is not sent
//     again, because the server may have carried it out. For methods that may run twice, you can change that
//     with a retryPolicy in Config.ServiceConfig.
//
// If Config.Owners is above 1, the next best member for a key gets the key's calls while the connection to
// the first member fails.
//
// # Connections
//
// The first call for a key of a member, or grpc.ClientConn.Connect, opens the connection to that member. The
// connection does not use a proxy. The connection is closed when the member is gone and its calls have
// finished. Calls to a vanished host fail at their deadline, or earlier with grpc.WithKeepaliveParams.
//
// A client verifies certificates against the host of each api_addr. If the target has a name, the client
// verifies them against that name: roost:///media.example.org.
//
// # Errors
//
//	INTERNAL          the call has no key (from Config.Key)
//	INVALID_ARGUMENT  the same, from Check
//	OUT_OF_RANGE      servers have rejected the call for RetryTimeout (NotOwner)
//	UNAVAILABLE       no table yet, no owner, the owner was unreachable, or the server broke off
package routinggrpc
