// Package tlstest makes certificates for tests.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/inferencecache/inferencecache/tlsconfig"
)

// CA is an authority that lives as long as its test.
type CA struct {
	File        string // its certificate, PEM
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewCA makes an authority.
func NewCA(t testing.TB) *CA {
	t.Helper()
	template := newTemplate(t, "authority", time.Hour)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check(t, err)
	certificate, err := x509.ParseCertificate(der)
	check(t, err)
	ca := &CA{File: filepath.Join(t.TempDir(), "ca.crt"), certificate: certificate, key: key}
	write(t, ca.File, "CERTIFICATE", der)
	return ca
}

// Server makes a server's certificate for the given host names and addresses. CA stays empty.
func (ca *CA) Server(t testing.TB, hosts ...string) tlsconfig.Files {
	t.Helper()
	template := newTemplate(t, hosts[0], time.Hour)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return ca.issue(t, template)
}

// Client makes a client's certificate. CA stays empty.
func (ca *CA) Client(t testing.TB, name string) tlsconfig.Files {
	t.Helper()
	template := newTemplate(t, name, time.Hour)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return ca.issue(t, template)
}

// Expired makes a client's certificate that ended a minute ago.
func (ca *CA) Expired(t testing.TB, name string) tlsconfig.Files {
	t.Helper()
	template := newTemplate(t, name, -time.Minute)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return ca.issue(t, template)
}

func (ca *CA) issue(t testing.TB, template *x509.Certificate) tlsconfig.Files {
	t.Helper()
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, key.Public(), ca.key)
	check(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	check(t, err)
	dir := t.TempDir()
	files := tlsconfig.Files{Certificate: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	write(t, files.Certificate, "CERTIFICATE", der)
	write(t, files.Key, "PRIVATE KEY", keyDER)
	return files
}

// Copy replaces a file by another's contents in one step.
func Copy(t testing.TB, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	check(t, err)
	check(t, os.WriteFile(to+".new", data, 0o600))
	check(t, os.Rename(to+".new", to))
}

func newTemplate(t testing.TB, name string, life time.Duration) *x509.Certificate {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	check(t, err)
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(life),
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	return key
}

func write(t testing.TB, name, kind string, der []byte) {
	t.Helper()
	check(t, os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
