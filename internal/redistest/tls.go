package redistest

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// The user of StartTLS.
const (
	user     = "roost"
	password = "correct-horse:battery/staple?" // needs escaping in a URL
)

// StartTLS starts a single server that only accepts TLS, with a certificate of a private CA, and only a user
// with a password.
func StartTLS(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{user: user, password: password}
	cert, key := filepath.Join(tb.TempDir(), "cert.pem"), filepath.Join(tb.TempDir(), "key.pem")
	s.tls = certificate(tb, cert, key)
	s.args = []string{
		"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no",
		"--user", "default", "off", "--user", user, "on", ">" + password, "~*", "&*", "+@all",
	}
	s.launch(tb)
	s.ready()
	return s
}

// TLSConfig returns a configuration that trusts the server of StartTLS, or nil for other servers.
func (s *Server) TLSConfig() *tls.Config { return s.tls.Clone() }

// certificate writes httptest's certificate for this host, which is its own authority,
// and the key, and returns a configuration that trusts it.
func certificate(tb testing.TB, certFile, keyFile string) *tls.Config {
	tb.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	server.Close()
	pair := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		tb.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		keyFile:  {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
}
