// Package certs gives the webhooks their certificate: one that the controller makes and rotates, kept in a
// Secret, or one that somebody else keeps in files. It also says whether the API server can verify it.
package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/inferencecache/inferencecache/tlsconfig"
)

// Names of the parts of a certificate, in a folder and in a Secret.
const (
	certificateName = corev1.TLSCertKey
	keyName         = corev1.TLSPrivateKeyKey
)

// minVersion is the oldest TLS that is spoken.
const minVersion = tls.VersionTLS12

// Files returns what a TLS server needs to use, and follow, the tls.crt and tls.key of a folder. Run must
// be called, and follows them until its context ends.
func Files(dir string, log *slog.Logger) (config *tls.Config, run func(context.Context) error, err error) {
	source, err := tlsconfig.Load(tlsconfig.Files{
		Certificate: filepath.Join(dir, certificateName), Key: filepath.Join(dir, keyName),
	}, 0, log)
	if err != nil {
		return nil, nil, fmt.Errorf("load the certificate of the webhooks: %w", err)
	}
	if config, err = source.Server(); err != nil {
		return nil, nil, err
	}
	return config, source.Run, nil
}

// Kept is the certificate that a Secret holds. It has none until Start has seen the Secret.
type Kept struct {
	name    string // of the Secret
	secrets cache.Informers
	log     *slog.Logger
	current atomic.Pointer[tls.Certificate]
}

// NewKept returns a Kept for the only Secret that secrets has, whose name is for logs.
func NewKept(name string, secrets cache.Informers, log *slog.Logger) *Kept {
	return &Kept{name: name, secrets: secrets, log: log}
}

// Server returns a TLS server's configuration. Every handshake uses the certificate of its time.
func (k *Kept) Server() *tls.Config {
	return &tls.Config{
		MinVersion: minVersion,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if c := k.current.Load(); c != nil {
				return c, nil
			}
			return nil, errors.New("the webhooks have no certificate yet")
		},
	}
}

// Start follows the Secret until ctx ends.
func (k *Kept) Start(ctx context.Context) error {
	informer, err := k.secrets.GetInformer(ctx, &corev1.Secret{})
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("follow Secret %s: %w", k.name, err)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    k.take,
		UpdateFunc: func(_, secret any) { k.take(secret) },
	})
	if err != nil {
		return fmt.Errorf("follow Secret %s: %w", k.name, err)
	}
	<-ctx.Done()
	return informer.RemoveEventHandler(registration)
}

// NeedLeaderElection says that every process serves webhooks.
func (k *Kept) NeedLeaderElection() bool { return false }

// take uses what the Secret holds, if it is a certificate with its key.
func (k *Kept) take(object any) {
	secret, ok := object.(*corev1.Secret)
	if !ok || len(secret.Data[certificateName]) == 0 {
		return // the rotator has yet to fill it
	}
	certificate, err := tls.X509KeyPair(secret.Data[certificateName], secret.Data[keyName])
	if err != nil {
		k.log.Error("use the certificate of the webhooks; the one before stays in use", "secret", k.name, "error", err)
		return
	}
	k.current.Store(&certificate)
	k.log.Info("the webhooks have a certificate", "secret", k.name, "expires", certificate.Leaf.NotAfter)
}
