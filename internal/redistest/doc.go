// Package redistest starts real Redis servers for tests: a single server, a Redis Cluster, a master with
// sentinels, or a server with TLS and a password. It also provides a TCP link, which runs in front of a
// server and can hang, delay or break its connections.
//
//  1. A server listens only on 127.0.0.1, on a free port. Restart keeps the port. The files of the server are
//     in a temporary directory of the test.
//  2. A function that starts servers returns when they are ready: they reply, the cluster serves each slot,
//     and the sentinels know the replica and each other.
//  3. Servers are killed at the end of the test. On Linux, they are also killed if the test process dies.
//  4. If Redis is missing, the test fails and names the package to install. It is never skipped.
//
// A server stores nothing on disk unless it is started with "--appendonly yes", so Restart deletes its data.
// The server must be Redis 7 or newer. To use another server program, set the environment variable
// REDIS_SERVER to its name or path, for example REDIS_SERVER=valkey-server.
//
// To inject a fault, call a method of a [Server], such as Kill, Pause, ReadOnly, Full or RestartLoading, or a
// method of a [Link]. Some Redis commands also inject faults, for example Do("DEBUG", "SLEEP", "1") and
// Do("CLIENT", "KILL", …).
//
// Methods without a testing.TB parameter fail the test that started the server. Only Do, Try and the methods
// of a Link are safe for concurrent use.
package redistest
