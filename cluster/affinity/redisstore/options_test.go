package redisstore

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/roost-cluster/roost/cluster/affinity/pinstore"
	"github.com/roost-cluster/roost/internal/redistest"
)

const secret = "hunter2"

func TestOptionsRefused(t *testing.T) {
	for _, opt := range []Options{
		{},
		{URL: secret},
		{URL: "http://:" + secret + "@localhost"},
		{URL: "redis://:" + secret + "%zz@localhost"},
		{URL: "redis://:" + secret + "/x@localhost:6379"},
		{URL: "redis://localhost/" + secret},
		{URL: "redis://localhost/0/" + secret},
		{URL: "redis://:" + secret + "@localhost:port"},
		{URL: "redis://:" + secret + "@localhost?dial_timeout=soon"},
		{URL: "redis://" + secret + "\x00"},
		{URL: "unix://"},
		{URL: "redis://localhost", Prefix: "{roost}:"},
		{URL: "redis://localhost", Prefix: "a b"},
		{URL: "redis://localhost", Prefix: "a\x00"},
		{URL: "redis://localhost", Prefix: strings.Repeat("x", 65)},
	} {
		s, err := Open(t.Context(), opt)
		if err == nil {
			t.Errorf("%v: opened", opt)
			_ = s.Close()
			continue
		}
		if strings.Contains(err.Error(), secret) || !strings.HasPrefix(err.Error(), "redisstore: ") {
			t.Errorf("error %v; want one of redisstore without the URL", err)
		}
	}
}

func TestSecretsStaySecret(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "another")
	opt := Options{URL: "redis://:" + secret + "@" + server.Addr(), SentinelPassword: secret}
	s := open(t, opt)
	fails(t, s, "WRONGPASS")
	if err := try(s, read("room")); strings.Contains(err.Error(), secret) {
		t.Errorf("error %v", err)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "opt", opt)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "opt", opt)
	for _, text := range []string{log.String(), fmt.Sprint(opt), fmt.Sprintf("%+v", opt), fmt.Sprintf("%#v", opt)} {
		if strings.Contains(text, secret) {
			t.Errorf("%s has the password", text)
		}
		if !strings.Contains(text, server.Addr()) {
			t.Errorf("%s has not the address", text)
		}
	}
}

// A server without CLIENT TRACKING is detected, and works with client_cache=0.
func TestNoTracking(t *testing.T) {
	server := miniredis.RunT(t)
	s := open(t, Options{URL: "redis://" + server.Addr()})
	fails(t, s, "add ?client_cache=0")
	s = ready(t, Options{URL: "redis://" + server.Addr() + "?client_cache=0"})
	notified := listen(s)
	redistest.Eventually(t, "an answer", func() error { return try(s, read("room")) }) // on a busy machine it can be late
	if all := notified.all(); len(all) != 0 {
		t.Errorf("notified of %q", all)
	}
}

// A user who may not say what to track, as before that right was in doc.go, is notified nevertheless.
// Without the right since the connection began, answers are fresh for as long as without notifications.
func TestAccessListWithoutCaching(t *testing.T) {
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "roost", "on", ">"+secret, "~*", "+@all", "-client|caching")
	opt := Options{URL: "redis://roost:" + secret + "@" + server.Addr()}
	s, other := ready(t, opt), ready(t, opt)
	notified := listen(s)
	is := swap(t, s, first("room", node("n", 1)))
	swap(t, other, pinstore.Op{Partition: 17, Room: "room", If: is.Pin, Set: pinstore.Pin{Incarnation: node("m", 1)}, TTL: time.Hour})
	redistest.Eventually(t, "a notification", func() error { return notified.have("room") })

	server.Do("ACL", "SETUSER", "roost", "+client|caching")
	s = ready(t, opt)
	notified = listen(s)
	server.Do("ACL", "SETUSER", "roost", "-client|caching")
	if got := swap(t, s, read("room")); got.Fresh > untrackedFresh {
		t.Errorf("an answer that is not tracked is fresh for %v", got.Fresh)
	}
	if all := notified.all(); len(all) != 0 { // the keeper would read the pin again, and so on
		t.Errorf("notified of %q", all)
	}
}

// accessList returns the rights of a user by doc.go.
func accessList(t *testing.T) []string {
	t.Helper()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	rights := regexp.MustCompile(`[+~][a-z|:*]{2,}`).FindAllString(string(doc), -1)
	if len(rights) < 20 {
		t.Fatalf("rights: %q", rights)
	}
	return rights
}

// The commands in doc.go are enough.
func TestAccessList(t *testing.T) {
	server := redistest.Start(t)
	server.Do(append([]string{"ACL", "SETUSER", "roost", "on", ">" + secret}, accessList(t)...)...)
	s := ready(t, Options{URL: "redis://roost:" + secret + "@" + server.Addr()})
	if err := attempt(s, answerTime, func(_, err error) error { return err }); err != nil {
		t.Error(err)
	}
	server.Do("DEL", s.keys.pin(17, "room"), s.keys.pin(17, "room limited"))
	if err := within(answerTime, calls(s, "room")["index"].do); err != nil {
		t.Errorf("index: %v", err)
	}
	if left := server.Do("EXISTS", s.keys.rooms(17, "n|1")); left != "0" {
		t.Error("clean.lua was not let through")
	}
	for _, ttl := range []time.Duration{time.Second, 0} {
		if _, err := s.Agree(t.Context(), node("n", 1), ttl, stating("c")); err != nil {
			t.Errorf("settings: %v", err)
		}
	}
	other := open(t, Options{URL: "redis://roost:" + secret + "@" + server.Addr(), Prefix: "other:"})
	fails(t, other, "NOPERM")
}
