// Package agenturl reads the address of an agent's HTTP API, as programs and people write it.
package agenturl

import (
	"fmt"
	"net/url"
	"strings"
)

// Parse returns host:port, or a URL with or without a path, as a URL without a slash at its end.
func Parse(addr string) (string, error) {
	base := addr
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%q is neither host:port nor the URL of an agent", addr)
	}
	return strings.TrimSuffix(base, "/"), nil
}
