package auth

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"github.com/inferencecache/inferencecache/aggregator/kube"
)

// Kubernetes asks a Kubernetes API server.
type Kubernetes struct {
	reviews authenticationclient.TokenReviewInterface
}

// NewKubernetes returns a Reviewer for the cluster that a kubeconfig file names, or, if kubeconfig is
// empty, for the cluster that this process runs in.
func NewKubernetes(kubeconfig string) (*Kubernetes, error) {
	config, err := kube.Config(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Timeout = reviewTimeout
	config.ContentType = runtime.ContentTypeJSON
	config.QPS, config.Burst = 50, 100 // a flood of bad tokens must not make good ones wait long
	client, err := authenticationclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for token reviews: %w", err)
	}
	return &Kubernetes{client.TokenReviews()}, nil
}

// Review implements Reviewer.
func (k *Kubernetes) Review(ctx context.Context, token, audience string) (*authenticationv1.TokenReviewStatus, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}}}
	review, err := k.reviews.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create a TokenReview: %w", err)
	}
	return &review.Status, nil
}
