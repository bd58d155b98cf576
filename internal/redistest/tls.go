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

// This is the only user that a server of StartTLS accepts.
const (
	user     = "roost"
	password = "correct-horse:battery/staple?" // needs escaping in a URL
)

// StartTLS starts a single server that accepts only TLS connections and only one user, with a password. Its
// certificate is self-signed.
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

// TLSConfig returns a client configuration that trusts the certificate of a server of StartTLS. For other
// servers it returns nil.
func (s *Server) TLSConfig() *tls.Config { return s.tls.Clone() }

// certificate writes the self-signed certificate of package httptest for 127.0.0.1, and its private key. It
// returns a configuration that trusts the certificate.
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
