package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"log/slog"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func newRotator(names ...string) *Rotator {
	return NewRotator(nil, Rotation{Names: names}, slog.New(slog.DiscardHandler))
}

// renewed runs renew and says which parts of the Secret changed.
func renewed(t *testing.T, r *Rotator, secret *corev1.Secret, now time.Time) (authority, certificate bool) {
	t.Helper()
	before := secret.DeepCopy().Data
	changed, err := r.renew(secret, now)
	if err != nil {
		t.Fatal(err)
	}
	differs := func(name string) bool { return !bytes.Equal(before[name], secret.Data[name]) }
	authority, certificate = differs(authorityName), differs(certificateName)
	if changed != (authority || certificate) || authority != differs(authorityKeyName) || certificate != differs(keyName) {
		t.Errorf("changed %v, authority %v, certificate %v: keys go with certificates", changed, authority, certificate)
	}
	return authority, certificate
}

func TestASecretIsKeptInOrder(t *testing.T) {
	r := newRotator("hooks.n.svc", "hooks.n.svc.cluster.local")
	now := time.Now()
	full := &corev1.Secret{}
	if authority, certificate := renewed(t, r, full, now); !authority || !certificate {
		t.Fatalf("an empty Secret gets authority %v, certificate %v", authority, certificate)
	}
	for _, c := range []struct {
		name                   string
		rotator                *Rotator
		change                 func(map[string][]byte)
		at                     time.Time
		authority, certificate bool
	}{
		{"one in order stays", r, nil, now, false, false},
		{"one that ends in 91 days stays", r, nil, now.Add(defaultLifetime - 91*24*time.Hour), false, false},
		{"one that ends in 89 days is renewed", r, nil, now.Add(defaultLifetime - 89*24*time.Hour), false, true},
		{"so is an authority that ends", r, nil, now.Add(lifetimeOfAuthority - 89*24*time.Hour), true, true},
		{"a certificate without its key is renewed", r, func(d map[string][]byte) { delete(d, keyName) }, now, false, true},
		{"so is one that cannot be read", r, func(d map[string][]byte) { d[certificateName] = []byte("x") }, now, false, true},
		{"so is an authority without its key", r, func(d map[string][]byte) { delete(d, authorityKeyName) }, now, true, true},
		{"so is one that cannot be read, and all with it", r, func(d map[string][]byte) { d[authorityName] = []byte("x") }, now, true, true},
		{"one for another name is renewed", newRotator("other.n.svc"), nil, now, false, true},
		{"so is one that lacks a name", newRotator("hooks.n.svc", "localhost"), nil, now, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			secret := full.DeepCopy()
			if c.change != nil {
				c.change(secret.Data)
			}
			if authority, certificate := renewed(t, c.rotator, secret, c.at); authority != c.authority || certificate != c.certificate {
				t.Errorf("authority %v, certificate %v; want %v, %v", authority, certificate, c.authority, c.certificate)
			}
			if again, _ := renewed(t, c.rotator, secret, c.at); again {
				t.Error("a second look renews again")
			}
		})
	}
}

func TestAnAuthorityWithAnotherKindOfKeyIsAnError(t *testing.T) {
	pair := map[string][]byte{}
	if _, err := authorityOf(pair); err == nil || !strings.Contains(err.Error(), "read the authority") {
		t.Errorf("got %v", err)
	}
}

// authority returns the certificate of a new authority, good until some time after now.
func authority(t *testing.T, now time.Time, good time.Duration) []byte {
	t.Helper()
	made, err := newRotator("n").library.CreateCACert(now.Add(-time.Hour), now.Add(good))
	if err != nil {
		t.Fatal(err)
	}
	return made.CertPEM
}

func TestABundleKeepsWhatIsReplaced(t *testing.T) {
	now := time.Now()
	a, b, c, d, ended := authority(t, now, time.Hour), authority(t, now, time.Hour), authority(t, now, time.Hour), authority(t, now, time.Hour), authority(t, now, -time.Minute)
	join := func(all ...[]byte) string { return string(bytes.Join(all, nil)) }
	for _, tt := range []struct{ name, before, want string }{
		{"nothing was there", "", join(a)},
		{"it is there", join(a), join(a)},
		{"another is kept", join(b), join(a, b)},
		{"it comes first", join(b, a), join(a, b)},
		{"two others are kept", join(b, c, d), join(a, b, c)},
		{"one that has ended is not", join(ended, b), join(a, b)},
		{"what is no certificate is not", "x" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})) + join(b), join(a, b)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := bundle(a, []byte(tt.before), now)
			if string(got) != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			if again := bundle(a, got, now); !bytes.Equal(again, got) {
				t.Errorf("a second time gives\n%s", again)
			}
		})
	}
}

func TestConfigurationsTrustAnAuthority(t *testing.T) {
	now := time.Now()
	a := authority(t, now, time.Hour)
	hook := func(name, caBundle string) any {
		config := map[string]any{"service": map[string]any{"name": "s"}, "unknown": "kept"}
		if caBundle != "" {
			config["caBundle"] = caBundle
		}
		return map[string]any{"name": name, "clientConfig": config, "unknown": "kept"}
	}
	configuration := &unstructured.Unstructured{Object: map[string]any{"webhooks": []any{hook("a", ""), hook("b", "Cg=="), hook("c", "no base64")}}}
	if changed, err := trust(configuration, a, now); !changed || err != nil {
		t.Fatalf("changed %v, %v", changed, err)
	}
	hooks, _, _ := unstructured.NestedSlice(configuration.Object, "webhooks")
	for _, h := range hooks {
		text, _, _ := unstructured.NestedString(h.(map[string]any), "clientConfig", "caBundle")
		if data, err := base64.StdEncoding.DecodeString(text); err != nil || !bytes.Equal(data, a) {
			t.Errorf("webhook %v", h)
		}
		if kept, _, _ := unstructured.NestedString(h.(map[string]any), "clientConfig", "unknown"); kept != "kept" {
			t.Errorf("webhook %v has lost a field", h)
		}
	}
	if changed, err := trust(configuration, a, now); changed || err != nil {
		t.Errorf("a second time: changed %v, %v", changed, err)
	}
	for _, object := range []map[string]any{{"webhooks": "none"}, {"webhooks": []any{"none"}}} {
		if _, err := trust(&unstructured.Unstructured{Object: object}, a, now); err == nil {
			t.Errorf("%v is accepted", object)
		}
	}
}

func TestWhatTheAPIServerWouldSay(t *testing.T) {
	r := newRotator("hooks.n.svc")
	secret := &corev1.Secret{}
	renewed(t, r, secret, time.Now())
	pair, err := tls.X509KeyPair(secret.Data[certificateName], secret.Data[keyName])
	if err != nil {
		t.Fatal(err)
	}
	shown := []*x509.Certificate{pair.Leaf}
	service := func(name string) *admissionregistrationv1.ServiceReference {
		return &admissionregistrationv1.ServiceReference{Namespace: "n", Name: name}
	}
	at := func(text string) *string { return &text }
	good := secret.Data[authorityName]
	for _, c := range []struct {
		name, want string
		config     admissionregistrationv1.WebhookClientConfig
	}{
		{"a Service", "", admissionregistrationv1.WebhookClientConfig{CABundle: good, Service: service("hooks")}},
		{"a URL", "", admissionregistrationv1.WebhookClientConfig{CABundle: good, URL: at("https://hooks.n.svc:9443/x")}},
		{"another Service", "verify its certificate", admissionregistrationv1.WebhookClientConfig{CABundle: good, Service: service("other")}},
		{"another URL", "verify its certificate", admissionregistrationv1.WebhookClientConfig{CABundle: good, URL: at("https://localhost/x")}},
		{"another authority", "verify its certificate", admissionregistrationv1.WebhookClientConfig{CABundle: authority(t, time.Now(), time.Hour), Service: service("hooks")}},
		{"no authority", "has no caBundle yet", admissionregistrationv1.WebhookClientConfig{Service: service("hooks")}},
		{"no certificate", "holds no certificate", admissionregistrationv1.WebhookClientConfig{CABundle: []byte("x"), Service: service("hooks")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := verify(shown, &c.config)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestTheCertificateOfASecret(t *testing.T) {
	k := NewKept("n/s", nil, slog.New(slog.DiscardHandler))
	if _, err := k.Server().GetCertificate(nil); err == nil {
		t.Error("there is a certificate before there is one")
	}
	k.take(&corev1.Secret{})
	if _, err := k.Server().GetCertificate(nil); err == nil {
		t.Error("an empty Secret has a certificate")
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	renewed(t, newRotator("n"), secret, time.Now())
	k.take(secret)
	first, err := k.Server().GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	broken := secret.DeepCopy()
	broken.Data[keyName] = []byte("x")
	k.take(broken)
	if c, err := k.Server().GetCertificate(nil); err != nil || c != first {
		t.Errorf("a broken Secret changes the certificate: %v, %v", c, err)
	}
}
