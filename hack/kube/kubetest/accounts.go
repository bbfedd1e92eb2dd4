package kubetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Namespace makes a namespace where it is missing.
func (c *Cluster) Namespace(t testing.TB, name string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := c.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("create namespace %s: %v", name, err)
	}
}

func (c *Cluster) namespaceExists(ctx context.Context, name string) (bool, error) {
	_, err := c.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// ServiceAccount returns what a client needs to act as a ServiceAccount, with what its roles allow and no
// more. Namespace and ServiceAccount are made where they are missing.
func (c *Cluster) ServiceAccount(t testing.TB, namespace, name string) *rest.Config {
	t.Helper()
	config := c.Config()
	config.BearerToken = c.Token(t, namespace, name)
	return config
}

// Token returns a token of a ServiceAccount for the audiences, or without one for the API server. Namespace
// and ServiceAccount are made where they are missing.
func (c *Cluster) Token(t testing.TB, namespace, name string, audiences ...string) string {
	t.Helper()
	c.Namespace(t, namespace)
	accounts := c.client.CoreV1().ServiceAccounts(namespace)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := accounts.Create(t.Context(), account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("create ServiceAccount %s/%s: %v", namespace, name, err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	request, err := accounts.CreateToken(t.Context(), name, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("request a token of ServiceAccount %s/%s: %v", namespace, name, err)
	}
	return request.Status.Token
}

// Kubeconfig returns the path of a kubeconfig file with which a program acts as an administrator.
func (c *Cluster) Kubeconfig(t testing.TB) string {
	t.Helper()
	return Kubeconfig(t, c.config)
}

// Kubeconfig writes a kubeconfig file with which a program acts as a client with the config would, such as
// one of (*Cluster).ServiceAccount, and returns its path.
func Kubeconfig(t testing.TB, config *rest.Config) string {
	t.Helper()
	const name = "test"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, file)
	if err == nil {
		err = os.Chmod(file, 0o600)
	}
	if err != nil {
		t.Fatal(fmt.Errorf("write a kubeconfig file: %w", err))
	}
	return file
}
