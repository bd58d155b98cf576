package redisstore

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/affinity/redisconn"
	"github.com/roost-cluster/roost/internal/redistest"
)

const secret = "hunter2"

type noConn struct{ redisconn.Conn }

func (noConn) Close() error { return nil }

func TestPrefixRefused(t *testing.T) {
	for _, prefix := range []string{"{roost}:", "a b", "a\x00", strings.Repeat("x", 65)} {
		if _, err := New(noConn{}, Options{Prefix: prefix}); err == nil || !strings.HasPrefix(err.Error(), "redisstore: ") {
			t.Errorf("%q: error %v", prefix, err)
		}
	}
}

// accessList returns the rights that doc.go lists for a user.
func accessList(t *testing.T) []string {
	t.Helper()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	rights := regexp.MustCompile(`[+~&][a-z|:*]{2,}`).FindAllString(string(doc), -1)
	if len(rights) < 20 {
		t.Fatalf("rights: %q", rights)
	}
	return rights
}

// A user with only the rights in doc.go can use all calls of a store.
func TestAccessList(t *testing.T) {
	server := redistest.Start(t)
	server.Do(append([]string{"ACL", "SETUSER", "roost", "on", ">" + secret}, accessList(t)...)...)
	s := ready(t, redisAt{URL: "redis://roost:" + secret + "@" + server.Addr()})
	if err := attempt(s, answerTime, func(_, err error) error { return err }); err != nil {
		t.Error(err)
	}
	server.Do("DEL", names(s).pin(17, "room"), names(s).pin(17, "room limited"))
	if err := within(answerTime, calls(s, "room")["index"].do); err != nil {
		t.Errorf("index: %v", err)
	}
	if left := server.Do("ZSCORE", names(s).rooms(17, "n|1"), "room"); left != "" {
		t.Error("clean.lua was not let through")
	}
	for _, ttl := range []time.Duration{time.Second, 0} {
		if _, err := s.Agree(t.Context(), node("n", 1), ttl, stating("c")); err != nil {
			t.Errorf("settings: %v", err)
		}
	}
	other := open(t, redisAt{URL: "redis://roost:" + secret + "@" + server.Addr(), Prefix: "other:"})
	fails(t, other, "NOPERM")
}
