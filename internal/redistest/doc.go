// Package redistest starts real Redis servers for tests: one alone, a Redis
// Cluster, a master with sentinels, one behind TLS and a password; and a TCP link
// to put before any of them, which hangs, delays and breaks on demand.
//
//  1. A server listens on 127.0.0.1 only, on a free port that it keeps over
//     Restart, and has its files in a directory of the test.
//  2. A function that starts servers returns when they are ready: they answer, the
//     cluster serves each slot, the sentinels know the replica and one another.
//  3. Servers end with the test, and on Linux also with a test process that dies.
//  4. Where Redis is missing the test fails and says what to install. It never skips.
//
// A server keeps nothing on disk unless it is started with "--appendonly yes", so
// Restart empties it. Redis 7 or newer is needed, or the server that the variable
// REDIS_SERVER names instead, as a command or a path: REDIS_SERVER=valkey-server.
//
// Faults are methods of the server, of the link, or commands: Kill and Restart,
// Pause and Resume (a process that hangs: connections open, no answer), ReadOnly,
// Full, RestartLoading; Do("DEBUG", "SLEEP", "1"), Do("CLIENT", "KILL", …) and all
// else that Redis knows.
//
// Methods that take no testing.TB fail the test that started the server.
// Do and Try may be called from any goroutine, the others from one at a time.
package redistest
