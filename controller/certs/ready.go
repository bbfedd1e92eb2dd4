package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience bounds one check.
const patience = 2 * time.Second

// Check says whether the API server can call the webhooks: whether they are served, with a certificate that
// the webhook configurations make it trust.
type Check struct {
	// Address is where the webhooks listen, as host:port.
	Address string
	// Mutating and Validating are the names of the webhook configurations.
	Mutating, Validating string
	// Reader reads them.
	Reader client.Reader
}

// Run returns why the API server cannot call the webhooks, nil if it can.
func (c *Check) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	served, err := c.served(ctx)
	if err != nil {
		return fmt.Errorf("the webhooks are not served: %w", err)
	}
	configs, err := c.clientConfigs(ctx)
	if err != nil {
		return err
	}
	for name, config := range configs {
		if err := verify(served, config); err != nil {
			return fmt.Errorf("the API server cannot call webhook %s: %w", name, err)
		}
	}
	return nil
}

// served returns the certificates that the webhooks show, their own first.
func (c *Check) served(ctx context.Context) ([]*x509.Certificate, error) {
	// What is shown is verified below, as the API server does.
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: minVersion}}
	conn, err := dialer.DialContext(ctx, "tcp", reachable(c.Address))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates, nil
}

// reachable replaces the address that stands for all of them.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsUnspecified() {
		return address
	}
	return net.JoinHostPort("localhost", port)
}

// clientConfigs returns how the API server calls each webhook.
func (c *Check) clientConfigs(ctx context.Context) (map[string]*admissionregistrationv1.WebhookClientConfig, error) {
	var mutating admissionregistrationv1.MutatingWebhookConfiguration
	var validating admissionregistrationv1.ValidatingWebhookConfiguration
	if err := c.Reader.Get(ctx, client.ObjectKey{Name: c.Mutating}, &mutating); err != nil {
		return nil, fmt.Errorf("read MutatingWebhookConfiguration %s: %w", c.Mutating, err)
	}
	if err := c.Reader.Get(ctx, client.ObjectKey{Name: c.Validating}, &validating); err != nil {
		return nil, fmt.Errorf("read ValidatingWebhookConfiguration %s: %w", c.Validating, err)
	}
	configs := map[string]*admissionregistrationv1.WebhookClientConfig{}
	for i := range mutating.Webhooks {
		configs[mutating.Webhooks[i].Name] = &mutating.Webhooks[i].ClientConfig
	}
	for i := range validating.Webhooks {
		configs[validating.Webhooks[i].Name] = &validating.Webhooks[i].ClientConfig
	}
	return configs, nil
}

// verify does what the API server does with the certificates that a webhook shows.
func verify(shown []*x509.Certificate, config *admissionregistrationv1.WebhookClientConfig) error {
	if len(config.CABundle) == 0 {
		return errors.New("its configuration has no caBundle yet")
	}
	options := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
	if !options.Roots.AppendCertsFromPEM(config.CABundle) {
		return errors.New("the caBundle of its configuration holds no certificate")
	}
	for _, certificate := range shown[1:] {
		options.Intermediates.AddCert(certificate)
	}
	switch {
	case config.Service != nil:
		options.DNSName = config.Service.Name + "." + config.Service.Namespace + ".svc"
	case config.URL != nil:
		u, err := url.Parse(*config.URL)
		if err != nil {
			return fmt.Errorf("read its URL: %w", err)
		}
		options.DNSName = u.Hostname()
	}
	if _, err := shown[0].Verify(options); err != nil {
		return fmt.Errorf("verify its certificate: %w", err)
	}
	return nil
}
