package controller_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/inferencecache/inferencecache/controller"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// shown returns the certificate that the webhooks of a controller show.
func shown(t testing.TB, p *process) *x509.Certificate {
	t.Helper()
	conn, err := tls.Dial("tcp", p.WebhookAddr(), &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}

// accepts says why the API server cannot store a valid object.
func (w *world) accepts(t testing.TB) error {
	return w.Create(t.Context(), &v1alpha1.CacheTenant{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", GenerateName: "t-"}, Spec: v1alpha1.CacheTenantSpec{TenantID: "team-a"},
	}, client.DryRunAll)
}

// authorities returns the bundles that the API server verifies webhooks with.
func (w *world) authorities(t testing.TB) [][]byte {
	t.Helper()
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: controller.DefaultMutatingHooks}}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: controller.DefaultValidatingHooks}}
	w.get(t, mutating)
	w.get(t, validating)
	var all [][]byte
	for _, hook := range mutating.Webhooks {
		all = append(all, hook.ClientConfig.CABundle)
	}
	for _, hook := range validating.Webhooks {
		all = append(all, hook.ClientConfig.CABundle)
	}
	return all
}

func TestKubeCertificates(t *testing.T) {
	w := newWorld(t)
	p := w.start(t, func(c *controller.Config) {
		c.Rotation.Lifetime, c.Rotation.Early, c.Rotation.Interval = time.Hour, time.Hour-3*time.Second, 500*time.Millisecond
	})
	w.install(t, p)
	p.awaitReady(t)

	t.Run("the controller's own are rotated", func(t *testing.T) {
		for range 2 {
			before := shown(t, p)
			eventually(t, "another certificate is shown", func() error {
				if err := w.accepts(t); err != nil {
					t.Errorf("while certificates are rotated: %v", err)
				}
				if shown(t, p).Equal(before) {
					return errors.New("it is still the same")
				}
				return nil
			})
		}
		p.awaitReady(t)
	})
	t.Run("a lost authority is replaced", func(t *testing.T) {
		before := w.authorities(t)[0]
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: controller.DefaultSecret}}
		eventually(t, "the Secret is emptied", func() error {
			w.get(t, secret)
			secret.Data = nil
			return w.Update(t.Context(), secret)
		})
		eventually(t, "all webhooks have another authority", func() error {
			for _, bundle := range w.authorities(t) {
				if bytes.Equal(bundle, before) {
					return errors.New("one has the same")
				}
			}
			return nil
		})
		p.awaitReady(t)
		eventually(t, "objects are accepted", func() error { return w.accepts(t) })
	})
	t.Run("an authority that is taken away comes back", func(t *testing.T) {
		validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: controller.DefaultValidatingHooks}}
		eventually(t, "the authority is taken away", func() error {
			w.get(t, validating)
			for i := range validating.Webhooks {
				validating.Webhooks[i].ClientConfig.CABundle = nil
			}
			return w.Update(t.Context(), validating)
		})
		eventually(t, "it is back", func() error {
			for _, bundle := range w.authorities(t) {
				if len(bundle) == 0 {
					return errors.New("one has none")
				}
			}
			return nil
		})
		p.awaitReady(t)
	})
}

// authority signs certificates for localhost.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func encoded(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{certificate, key, encoded("CERTIFICATE", der)}
}

// fill writes a new certificate and its key into a folder.
func (a *authority) fill(t testing.TB, dir string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"tls.crt": encoded("CERTIFICATE", der), "tls.key": encoded("PRIVATE KEY", keyDER)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// trust has the API server verify webhooks with an authority.
func (w *world) trust(t testing.TB, a *authority) {
	t.Helper()
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: controller.DefaultMutatingHooks}}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: controller.DefaultValidatingHooks}}
	w.get(t, mutating)
	w.get(t, validating)
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].ClientConfig.CABundle = a.pem
	}
	for i := range validating.Webhooks {
		validating.Webhooks[i].ClientConfig.CABundle = a.pem
	}
	for _, o := range []client.Object{mutating, validating} {
		if err := w.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKubeCertificateFiles(t *testing.T) {
	w := newWorld(t)
	dir, first := t.TempDir(), newAuthority(t)
	first.fill(t, dir, 7)
	p := w.start(t, func(c *controller.Config) { c.CertDir, c.HTTP2 = dir, true })
	w.install(t, p)
	if code, body := page(t, p.HealthAddr(), "/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("/readyz %d %s before the API server trusts the webhooks", code, body)
	}
	w.trust(t, first)
	p.awaitReady(t)
	eventually(t, "objects are accepted", func() error { return w.accepts(t) })

	first.fill(t, dir, 8)
	eventually(t, "the new certificate is shown", func() error {
		if n := shown(t, p).SerialNumber.Int64(); n != 8 {
			return errors.New("it is still the old one")
		}
		return nil
	})
	p.awaitReady(t)
	if err := w.accepts(t); err != nil {
		t.Error(err)
	}

	w.trust(t, newAuthority(t))
	eventually(t, "a controller that the API server does not trust is not ready", func() error {
		if code, _ := page(t, p.HealthAddr(), "/readyz"); code != http.StatusServiceUnavailable {
			return errors.New("it is ready")
		}
		return nil
	})
}
