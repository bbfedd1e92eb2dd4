package kubetest

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
)

const (
	// adminToken is the bearer token of the administrator; the cluster lives on loopback, for one test.
	adminToken = "administrator"
	// issuer of ServiceAccount tokens, and the audience that the API server itself accepts.
	issuer = "https://kubernetes.default.svc"
)

// server is what an API server is started with: the same when it is started again.
type server struct {
	url, certificate string
	args             []string
}

// newServer writes the keys and tokens of an API server that listens on a host of its own.
func newServer(dir, etcd, host string) (server, error) {
	tokens, key := filepath.Join(dir, "tokens.csv"), filepath.Join(dir, "accounts.pem")
	if err := os.WriteFile(tokens, []byte(adminToken+",administrator,administrator,system:masters\n"), 0o600); err != nil {
		return server{}, fmt.Errorf("write the administrator's token: %w", err)
	}
	if err := writeKey(key); err != nil {
		return server{}, err
	}
	certificates := filepath.Join(dir, "certificates")
	return server{
		url:         "https://" + host + ":6443",
		certificate: filepath.Join(certificates, "apiserver.crt"),
		args: []string{
			"--etcd-servers=" + etcd,
			"--bind-address=" + host, "--advertise-address=" + host, "--secure-port=6443",
			"--endpoint-reconciler-type=none", // it refuses loopback addresses
			"--cert-dir=" + certificates,      // it makes its own certificate there, unless there is one
			"--token-auth-file=" + tokens,
			"--authorization-mode=RBAC",
			"--service-account-issuer=" + issuer,
			"--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
			// It refuses pods in a namespace without the account "default", which a controller would make.
			"--disable-admission-plugins=ServiceAccount",
			"--service-cluster-ip-range=" + serviceCIDR(),
			"--allow-privileged",
		},
	}, nil
}

// writeKey writes a new key for signing the tokens of ServiceAccounts.
func writeKey(file string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(file, block, 0o600); err != nil {
		return fmt.Errorf("write a key: %w", err)
	}
	return nil
}

// config returns what a client needs that shows the token. The API server must have been ready once.
func (s server) config(token string) (*rest.Config, error) {
	certificate, err := os.ReadFile(s.certificate)
	if err != nil {
		return nil, fmt.Errorf("read the API server's certificate: %w", err)
	}
	return &rest.Config{
		Host:            s.url,
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: certificate},
		QPS:             -1, // no limit
	}, nil
}

// StartAPIServer starts the API server, again after StopAPIServer: at the same address, with the same
// data. It returns when the server is ready.
func (c *Cluster) StartAPIServer(t testing.TB) {
	t.Helper()
	c.apiserver = c.start(t, "kube-apiserver", c.server.args...)
	c.await(t, "the API server to be ready", c.ready)
}

// StopAPIServer stops the API server at once, as a crash would; what it has stored stays.
func (c *Cluster) StopAPIServer(testing.TB) {
	_ = c.apiserver.Stop(0) // says that force was needed
}

// ready asks the API server whether it is ready.
func (c *Cluster) ready(ctx context.Context) (bool, error) {
	config, err := c.server.config(adminToken)
	if err != nil {
		return false, nil //nolint:nilerr // it makes its certificate as it starts
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return false, nil //nolint:nilerr // the certificate is half written
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.server.url+"/readyz", nil)
	if err != nil {
		return false, fmt.Errorf("make a request: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return false, nil //nolint:nilerr // it does not listen yet
	}
	return response.StatusCode == http.StatusOK, response.Body.Close()
}
