package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cluster/clusterhttp"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its certificate
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotAfter: time.Now().Add(time.Hour),
	}
	a.cert, a.key = a.sign(template, template, nil)
	a.file = a.write(name, "CERTIFICATE", a.cert.Raw)
	return a
}

var serials atomic.Int64

func (a *authority) sign(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	template.SerialNumber, template.NotBefore = big.NewInt(serials.Add(1)), time.Now().Add(-2*time.Hour)
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// issue writes a certificate and its key, for servers at 127.0.0.1 and for clients.
func (a *authority) issue(name string, expires time.Time) (cert, key string) {
	a.t.Helper()
	c, k := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: expires,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write(name, "CERTIFICATE", c.Raw), a.write(name+"-key", "PRIVATE KEY", private)
}

// write writes a file, or atomically replaces it.
func (a *authority) write(name, kind string, b []byte) string {
	a.t.Helper()
	return replaceFile(a.t, filepath.Join(a.dir, name+".pem"), string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b})))
}

// TestTLS: an agent that requires client certificates answers clients that show one. For all other clients, the error
// explains the reason. Probes need no certificate.
func TestTLS(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(time.Hour)
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	cert, key := ours.issue("server", soon)
	good, goodKey := ours.issue("operator", soon)
	old, oldKey := ours.issue("expired", time.Now().Add(-time.Hour))
	foreign, foreignKey := theirs.issue("foreign", soon)
	a := agent(t, "a", append(calm(), "--http-tls-cert", cert, "--http-tls-key", key, "--http-client-ca", ours.file)...)
	secure := "https://" + a.Base
	for name, c := range map[string]struct {
		args []string
		want string // "": it succeeds
	}{
		"ours": {[]string{"--addr", secure, "--ca", ours.file, "--cert", good, "--cert-key", goodKey}, ""},
		"none": {
			[]string{"--addr", secure, "--ca", ours.file},
			"requires a certificate from the CA in its --http-client-ca; give one with --cert and --cert-key",
		},
		"expired": {
			[]string{"--addr", secure, "--ca", ours.file, "--cert", old, "--cert-key", oldKey},
			"rejects this client's certificate",
		},
		"foreign":        {[]string{"--addr", secure, "--ca", ours.file, "--cert", foreign, "--cert-key", foreignKey}, "in its --http-client-ca"},
		"plain":          {[]string{"--addr", a.Base}, "speaks https: put https:// in front of its address"},
		"wrong CA":       {[]string{"--addr", secure, "--ca", theirs.file}, "give the CA of the agent's certificate with --ca"},
		"machine's CAs":  {[]string{"--addr", secure}, "this client does not trust the certificate"},
		"another name":   {[]string{"--addr", strings.Replace(secure, "127.0.0.1", "localhost", 1), "--ca", ours.file}, "this client does not trust the certificate"},
		"no certificate": {[]string{"--addr", secure, "--ca", goodKey}, "has no certificate in PEM"},
		"half":           {[]string{"--addr", secure, "--cert", good}, "--cert and --cert-key belong together"},
		"without TLS":    {[]string{"--addr", a.Base, "--ca", ours.file}, "certificates need https:// in front of the address"},
	} {
		code, _, problem := roost(t, append([]string{"undrain"}, c.args...)...)
		if (code == 0) != (c.want == "") || !strings.Contains(problem, c.want) {
			t.Errorf("%s: %d %q, want %q", name, code, problem, c.want)
		}
	}
	pool := x509.NewCertPool()
	pool.AddCert(ours.cert)
	anyone := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/": 401, "/metrics": 401, "/v1/members": 401, "/v1/events": 401} {
		r, err := anyone.Get(secure + path) //nolint:noctx // the request ends with the test
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("%s without a certificate: %s", path, r.Status)
		}
	}
}

// TestTLSReload: a certificate is replaced under load, and no call fails. If the new files don't fit together, nothing
// changes, and the log says so.
func TestTLSReload(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t, "ours")
	cert, key := ours.issue("server", time.Now().Add(time.Hour))
	a := agent(t, "a", append(calm(), "--http-tls-cert", cert, "--http-tls-key", key)...)
	pool := x509.NewCertPool()
	pool.AddCert(ours.cert)
	var newest atomic.Int64 // serial number that a client saw
	client := &clusterhttp.Client{Base: "https://" + a.Base, HTTP: &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: pool, VerifyConnection: func(s tls.ConnectionState) error {
			newest.Store(s.PeerCertificates[0].SerialNumber.Int64())
			return nil
		}},
	}}}
	eventually(t, func() error { return client.Ready(t.Context()) })
	var calls sync.WaitGroup
	defer calls.Wait()
	over := make(chan struct{})
	defer close(over)
	for range 4 {
		calls.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(20 * time.Millisecond): // each call makes a handshake, which is enough load
				}
				if _, err := client.Place(t.Context(), "room"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 2 {
		before := newest.Load()
		ours.issue("server", time.Now().Add(2*time.Hour))
		eventually(t, func() error {
			if newest.Load() <= before {
				return fmt.Errorf("the certificate is still number %d", before)
			}
			return nil
		})
	}
	stays := newest.Load()
	if err := os.WriteFile(key, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if !strings.Contains(a.Text(), "TLS files unusable; keeping the former certificate") {
			return fmt.Errorf("the log does not name the problem")
		}
		return nil
	})
	if newest.Load() != stays {
		t.Errorf("the certificate is number %d, was %d", newest.Load(), stays)
	}
	ours.issue("server", time.Now().Add(2*time.Hour))
	eventually(t, func() error {
		if newest.Load() == stays {
			return fmt.Errorf("files that are good again are not used")
		}
		return nil
	})
}

// TestTokenOverPlainHTTP: no command sends a token over a network connection that others can read, unless the user
// allows it.
func TestTokenOverPlainHTTP(t *testing.T) {
	token := secretFile(t, "token\n")
	for addr, refused := range map[string]bool{
		"127.0.0.1:1": false, "localhost:1": false, "http://127.0.0.1:1/roost": false, "[::1]:1": false, "http://[::1]": false,
		"192.0.2.1:1": true, "http://192.0.2.1:1": true, "http://node-a/roost": true, "node-a:1": true, "http://127.0.0.1.example:1": true,
		"https://node-a.invalid:1": false, "http://127.0.0.1:1@node-a": true, "localhost.example:1": true,
	} {
		code, _, problem := roost(t, "leave", "--addr", addr, "--token-file", token, "--timeout", "100ms")
		if said := strings.Contains(problem, "the network could read the token"); said != refused || code == 0 {
			t.Errorf("%s: %d %s", addr, code, problem)
		}
		if refused {
			code, _, problem := roost(t, "proxy", "--key-from", "path:1", "--listen", "192.0.2.1:1", "--agents", addr, "--token-file", token)
			if code == 0 || !strings.Contains(problem, "the network could read the token") {
				t.Errorf("proxy, %s: %d %s", addr, code, problem)
			}
		}
	}
	_, _, problem := roost(t, "leave", "--addr", "192.0.2.1:1", "--token-file", token, "--insecure", "--timeout", "100ms")
	if strings.Contains(problem, "could read") {
		t.Error(problem)
	}
}

// TestTokenRedirected: a command does not send its token to another address, even if the server redirects to one.
func TestTokenRedirected(t *testing.T) {
	t.Parallel()
	var seen atomic.Int64
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) }))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, plain.URL, http.StatusTemporaryRedirect)
	}))
	defer secure.Close()
	ca := secretFile(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})))
	code, _, problem := roost(t, "leave", "--addr", secure.URL, "--ca", ca, "--token-file", secretFile(t, "token\n"))
	if code == 0 || seen.Load() > 0 || !strings.Contains(problem, "redirects to "+plain.URL) {
		t.Errorf("%d requests over plain http; %d %s", seen.Load(), code, problem)
	}
}

// TestGuardedReads: with --http-read-token-file, metrics and pages need a token, too.
func TestGuardedReads(t *testing.T) {
	t.Parallel()
	token, look := secretFile(t, "secret\n"), secretFile(t, "look\n")
	a := agent(t, "a", append(calm(), "--http-token-file", token, "--http-read-token-file", look)...)
	a.Token = "look"
	agree(t, a)
	for path, want := range map[string]int{"/": 401, "/metrics": 401, "/v1/stats": 401, "/healthz": 200} {
		for password, want := range map[string]int{"": want, "wrong": want, "look": 200, "secret": 200} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.Base+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.SetBasicAuth("me", password)
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode != want {
				t.Errorf("%s with password %q: %s", path, password, answer.Status)
			}
		}
	}
	succeeds(t, "members", "--addr", a.Base, "--token-file", look)
	code, _, problem := roost(t, "drain", "--addr", a.Base, "--token-file", look)
	if code == 0 || !strings.Contains(problem, "this token is wrong") {
		t.Errorf("drain with the token for reads: %d %s", code, problem)
	}
}
