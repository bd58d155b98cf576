package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The user of StartTLS.
const (
	User     = "roost"
	Password = "correct-horse:battery/staple?" // needs escaping in a URL
)

// StartTLS starts a single server that accepts only TLS, with a certificate of a private
// authority, and only the user User.
func StartTLS(tb testing.TB, args ...string) *Server {
	tb.Helper()
	dir := tb.TempDir()
	s := &Server{user: User, password: Password, tls: authority(tb, dir)}
	s.args = append([]string{
		"--tls-cert-file", filepath.Join(dir, certFile), "--tls-key-file", filepath.Join(dir, keyFile),
		"--tls-ca-cert-file", filepath.Join(dir, caFile), "--tls-auth-clients", "no",
		"--user", "default", "off", "--user", User, "on", ">" + Password, "~*", "&*", "+@all",
	}, args...)
	s.launch(tb)
	s.ready()
	return s
}

const caFile, certFile, keyFile = "ca.pem", "cert.pem", "key.pem"

// TLSConfig trusts the server of StartTLS; it is nil for other servers.
func (s *Server) TLSConfig() *tls.Config { return s.tls.Clone() }

// authority creates an authority and a certificate for this host, writes the files for
// redis-server into dir and returns a configuration that trusts them.
func authority(tb testing.TB, dir string) *tls.Config {
	tb.Helper()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redistest CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "redistest"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	caKey, key := newKey(tb), newKey(tb)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	caDER := sign(tb, ca, ca, caKey, caKey)
	writePEM(tb, filepath.Join(dir, caFile), "CERTIFICATE", caDER)
	writePEM(tb, filepath.Join(dir, certFile), "CERTIFICATE", sign(tb, leaf, ca, key, caKey))
	writePEM(tb, filepath.Join(dir, keyFile), "PRIVATE KEY", keyDER)
	if ca, err = x509.ParseCertificate(caDER); err != nil {
		tb.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	return &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func sign(tb testing.TB, cert, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) []byte {
	tb.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, key.Public(), parentKey)
	if err != nil {
		tb.Fatal(err)
	}
	return der
}

func writePEM(tb testing.TB, path, kind string, der []byte) {
	tb.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		tb.Fatal(err)
	}
}
