package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/roost-cluster/roost/cmd/roost/internal/settings"
)

// TestCertificateMovedBack: a certificate is moved away, and then back. The file is valid again, so the agent no longer
// reports a problem.
func TestCertificateMovedBack(t *testing.T) {
	dir := t.TempDir()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(1000 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	move := func(from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	cert := write("cert.pem", "CERTIFICATE", der)
	c, err := readCertificates(settings.TLS{Cert: cert, Key: write("key.pem", "PRIVATE KEY", pkcs)}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	move(cert, cert+".bak")
	c.look(now.Add(2 * lookEvery))
	if why, _ := c.problem(); why == "" {
		t.Fatal("no failure")
	}
	move(cert+".bak", cert)
	c.look(now.Add(4 * lookEvery))
	if why, _ := c.problem(); why != "" {
		t.Errorf("the files are good again, and the failure stays: %s", why)
	}
}
