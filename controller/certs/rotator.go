package certs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Rotation says what is rotated, and where the authority goes.
type Rotation struct {
	// Secret keeps authority, certificate and keys. It must exist, and may be empty.
	Secret types.NamespacedName
	// Names are the DNS names that the certificate is for, at least one.
	Names []string
	// Mutating and Validating are the webhook configurations that the authority is written into.
	Mutating, Validating string

	// Lifetime is how long a certificate is good, Early how long before its end it is replaced, Interval the
	// time between looks. 0 means a year, 90 days and 12 hours.
	Lifetime, Early, Interval time.Duration
}

const (
	defaultLifetime = 365 * 24 * time.Hour
	defaultEarly    = 90 * 24 * time.Hour
	defaultInterval = 12 * time.Hour
	// lifetimeOfAuthority is ten times that of a certificate.
	lifetimeOfAuthority = 10 * defaultLifetime
	// clockSkew is how far the clocks of those who verify may be behind.
	clockSkew = time.Hour
	// firstPause is the time before what failed is tried again; it doubles up to lastPause.
	firstPause, lastPause = time.Second, time.Minute
)

// Names of the authority's parts in the Secret, and what it is called.
const (
	authorityName    = "ca.crt"
	authorityKeyName = "ca.key"
	authorityCalled  = "inference-cache-webhook-ca"
)

// Rotator keeps the Secret and the webhook configurations in order, in the process that is the leader.
//
// The certificates are made and judged by the library's functions. Its own loop is not used: it wants to
// list all Secrets of the namespace, and a folder in which the certificate shows up.
type Rotator struct {
	Rotation
	manager manager.Manager
	library rotator.CertRotator
	changed chan struct{} // holds one note that something has changed
	log     *slog.Logger
}

// NewRotator returns a Rotator, whose Start a manager calls. The manager's cache must hold the Secret and
// the two webhook configurations.
func NewRotator(mgr manager.Manager, r Rotation, log *slog.Logger) *Rotator {
	r.Lifetime, r.Early, r.Interval = cmp.Or(r.Lifetime, defaultLifetime), cmp.Or(r.Early, defaultEarly), cmp.Or(r.Interval, defaultInterval)
	return &Rotator{
		Rotation: r,
		manager:  mgr,
		library: rotator.CertRotator{
			CAName:         authorityCalled,
			CAOrganization: "inference-cache",
			DNSName:        r.Names[0],
			ExtraDNSNames:  r.Names[1:],
			ExtKeyUsages:   &[]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		},
		changed: make(chan struct{}, 1),
		log:     log,
	}
}

// NeedLeaderElection says that one process rotates.
func (r *Rotator) NeedLeaderElection() bool { return true }

// Start looks at once, after each change of the objects, and in intervals, until ctx ends.
func (r *Rotator) Start(ctx context.Context) error {
	if err := r.watch(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	pause := firstPause
	for {
		next := r.Interval
		if err := r.ensure(ctx); ctx.Err() != nil {
			return nil
		} else if err != nil {
			r.log.Error("keep the certificate of the webhooks in order", "error", err, "again_in", pause)
			next, pause = pause, min(2*pause, lastPause)
		} else {
			pause = firstPause
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-r.changed:
		}
		timer.Stop()
	}
}

func (r *Rotator) watch(ctx context.Context) error {
	note := func() {
		select {
		case r.changed <- struct{}{}:
		default: // there is a note already
		}
	}
	for _, kind := range []client.Object{
		&corev1.Secret{}, &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{},
	} {
		informer, err := r.manager.GetCache().GetInformer(ctx, kind)
		if err == nil {
			_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
				AddFunc: func(any) { note() }, UpdateFunc: func(_, _ any) { note() }, DeleteFunc: func(any) { note() },
			})
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("follow %T objects: %w", kind, err)
		}
	}
	return nil
}

// ensure makes what is missing or ends soon, and writes the authority where it is wanted.
func (r *Rotator) ensure(ctx context.Context) error {
	secret := &corev1.Secret{}
	if err := r.manager.GetClient().Get(ctx, r.Secret, secret); err != nil {
		return fmt.Errorf("read Secret %s: %w", r.Secret, err)
	}
	secret = secret.DeepCopy()
	renewed, err := r.renew(secret, time.Now())
	if err != nil {
		return err
	}
	if renewed {
		if err := r.manager.GetClient().Update(ctx, secret); err != nil {
			return fmt.Errorf("update Secret %s: %w", r.Secret, err)
		}
		r.log.Info("the certificate of the webhooks is renewed", "secret", r.Secret.String())
	}
	authority := secret.Data[authorityName]
	return errors.Join(
		r.inject(ctx, "MutatingWebhookConfiguration", r.Mutating, authority),
		r.inject(ctx, "ValidatingWebhookConfiguration", r.Validating, authority),
	)
}

// renew puts a new authority, or a new certificate, into the Secret if there is none that is good for a
// while yet.
func (r *Rotator) renew(secret *corev1.Secret, now time.Time) (renewed bool, err error) {
	soon, begin := now.Add(r.Early), now.Add(-clockSkew)
	data := secret.Data
	if data == nil {
		data = map[string][]byte{}
		secret.Data = data
	}
	if !good(data[authorityName], data[authorityName], data[authorityKeyName], authorityCalled, nil, soon) {
		authority, err := r.library.CreateCACert(begin, now.Add(lifetimeOfAuthority))
		if err != nil {
			return false, fmt.Errorf("make an authority: %w", err)
		}
		data[authorityName], data[authorityKeyName] = authority.CertPEM, authority.KeyPEM
		renewed = true
	}
	current := true
	for _, name := range r.Names {
		current = current && good(data[authorityName], data[certificateName], data[keyName], name, r.library.ExtKeyUsages, soon)
	}
	if current && !renewed {
		return false, nil
	}
	authority, err := authorityOf(data)
	if err != nil {
		return false, err
	}
	data[certificateName], data[keyName], err = r.library.CreateCertPEM(authority, begin, now.Add(r.Lifetime))
	if err != nil {
		return false, fmt.Errorf("make a certificate: %w", err)
	}
	return true, nil
}

// good says whether a certificate can be used at a time; one that is broken cannot.
func good(authority, certificate, key []byte, name string, usages *[]x509.ExtKeyUsage, at time.Time) bool {
	valid, err := rotator.ValidCert(authority, certificate, key, name, usages, at)
	return valid && err == nil
}

func authorityOf(data map[string][]byte) (*rotator.KeyPairArtifacts, error) {
	pair, err := tls.X509KeyPair(data[authorityName], data[authorityKeyName])
	if err != nil {
		return nil, fmt.Errorf("read the authority: %w", err)
	}
	key, ok := pair.PrivateKey.(*rsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("read the authority: its key is %T, want an RSA key", pair.PrivateKey)
	}
	return &rotator.KeyPairArtifacts{Cert: pair.Leaf, Key: key, CertPEM: data[authorityName], KeyPEM: data[authorityKeyName]}, nil
}

// maxBundle bounds the authorities in a bundle: the current one, and those that it has replaced.
const maxBundle = 3

// bundle returns what a webhook configuration should trust: the authority and, until they end, those that it
// has replaced, whose certificates another process may still show.
func bundle(authority, before []byte, now time.Time) []byte {
	out := bytes.TrimSpace(authority)
	for n, rest := 1, before; n < maxBundle; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		old, err := x509.ParseCertificate(block.Bytes)
		text := bytes.TrimSpace(pem.EncodeToMemory(block))
		if err != nil || now.After(old.NotAfter) || bytes.Contains(out, text) {
			continue
		}
		out = append(append(bytes.Clone(out), '\n'), text...)
		n++
	}
	return append(bytes.Clone(out), '\n')
}
