// Package redistest starts real Redis servers for tests: a single server, a Redis Cluster, a master with
// sentinels, or a server with TLS and a password. It also has a TCP link to put in front of any of them,
// which can hang, delay and break.
//
//  1. A server listens on 127.0.0.1 only, on a free port that it keeps over Restart, with
//     its files in a directory of the test.
//  2. A function that starts servers returns when they are ready: they reply, the cluster serves each slot,
//     and the sentinels know the replica and each other.
//  3. Servers end with the test, and on Linux also with a test process that dies.
//  4. If Redis is missing, the test fails and names the package to install. It never skips.
//
// A server keeps nothing on disk unless it starts with "--appendonly yes", so Restart empties it. It must be
// Redis 7 or newer. To use another server, set the variable REDIS_SERVER to a command or a path:
// REDIS_SERVER=valkey-server.
//
// Faults are methods of the server, of the link, or commands: Kill and Restart, Pause and
// Resume (a process that hangs: connections open, no reply), ReadOnly, Full,
// RestartLoading; Do("DEBUG", "SLEEP", "1"), Do("CLIENT", "KILL", …) and other commands of
// Redis.
//
// Methods without a testing.TB fail the test that started the server. Do and Try are safe
// for concurrent use, the other methods are not.
package redistest
