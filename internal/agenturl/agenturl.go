// Package agenturl parses the address of an agent's HTTP API, as programs and people write it.
package agenturl

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
)

// zone matches the zone of a link-local address as people write it. In a URL, its percent sign is escaped:
// RFC 6874.
var zone = regexp.MustCompile(`(\[[0-9A-Fa-f:.]+)%(?:25)?([0-9A-Za-z._-]+)\]`)

// Parse parses host:port, or a URL with or without a path. It returns a URL without a slash at its end.
func Parse(addr string) (string, error) {
	base := addr
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	base = zone.ReplaceAllString(base, "$1%25$2]")
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%q is neither host:port nor the URL of an agent", Shown(addr))
	}
	return strings.TrimSuffix(base, "/"), nil
}

// Shown returns an address without its credentials, for logs and errors. It also accepts an invalid address,
// in which everything before the last @ may be part of a password, even after a slash.
func Shown(addr string) string {
	at := strings.LastIndexByte(addr, '@')
	if at < 0 {
		return addr
	}
	scheme, _, ok := strings.Cut(addr[:at], "://")
	if !ok || strings.ContainsAny(scheme, ":@") { // from a list of addresses, or a part of a password
		return "…" + addr[at:]
	}
	return scheme + "://…" + addr[at:]
}

// credentials matches the part of a URL before its host.
var credentials = regexp.MustCompile(`(://)[^\s"'` + "`" + `]*@`)

// Redacted hides the credentials of all URLs in a text. For a single address, use Shown, which is exact.
func Redacted(text string) string { return credentials.ReplaceAllString(text, "$1…@") }

// Private reports whether nobody on the network can read what is sent to an agent, because it uses https or
// is on this machine. A name other than localhost may mean any host.
func Private(addr string) bool {
	base, err := Parse(addr)
	if err != nil {
		return false
	}
	u, _ := url.Parse(base) // cannot fail: Parse has checked it
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" || u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}
