// Package agenturl parses addresses of an agent's HTTP API, which come from users and from programs.
package agenturl

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
)

// zone matches a link-local IPv6 address with a zone, such as [fe80::1%eth0]. RFC 6874 requires the percent
// sign to be escaped in a URL, but users rarely escape it.
var zone = regexp.MustCompile(`(\[[0-9A-Fa-f:.]+)%(?:25)?([0-9A-Za-z._-]+)\]`)

// Parse parses host:port, or a URL with or without a path. It returns a URL without a trailing slash.
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

// Shown returns addr without credentials, for logs and errors. addr can be invalid. If it is, everything
// before the last @ can be part of a password, even after a slash.
func Shown(addr string) string {
	at := strings.LastIndexByte(addr, '@')
	if at < 0 {
		return addr
	}
	scheme, _, ok := strings.Cut(addr[:at], "://")
	if !ok || strings.ContainsAny(scheme, ":@") { // the text before @ belongs to a list of addresses, or to a password
		return "…" + addr[at:]
	}
	return scheme + "://…" + addr[at:]
}

// credentials matches the user name and password in a URL.
var credentials = regexp.MustCompile(`(://)[^\s"'` + "`" + `]*@`)

// Redacted hides the credentials of all URLs in a text. For a single address, use Shown, because Redacted has
// to guess where a URL ends.
func Redacted(text string) string { return credentials.ReplaceAllString(text, "$1…@") }

// Private reports whether nobody on the network can read requests to the agent at addr, because addr uses
// https or is a loopback address. The only host name that Private accepts without https is localhost, because
// any other name can resolve to another host.
func Private(addr string) bool {
	base, err := Parse(addr)
	if err != nil {
		return false
	}
	u, _ := url.Parse(base) // cannot fail: Parse has checked it
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" || u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}
