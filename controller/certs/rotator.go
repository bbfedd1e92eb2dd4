package certs

import (
	"fmt"
	"net/http"
	"path"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
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

// rotators counts those of this process: the library wants a name of its own for each.
var rotators atomic.Int64

// Rotate adds to a manager what keeps the Secret and the webhook configurations in order, in the process
// that is the leader.
func (k *Kept) Rotate(mgr manager.Manager, r Rotation) error {
	err := rotator.AddRotator(narrowed(mgr, r), &rotator.CertRotator{
		SecretKey:      r.Secret,
		CertDir:        k.seen,
		CertName:       certificateName,
		KeyName:        keyName,
		CAName:         "inference-cache-webhook-ca",
		CAOrganization: "inference-cache",
		DNSName:        r.Names[0],
		ExtraDNSNames:  r.Names[1:],
		ControllerName: fmt.Sprintf("webhook-certificate-%d", rotators.Add(1)),
		IsReady:        make(chan struct{}),
		Webhooks: []rotator.WebhookInfo{
			{Name: r.Mutating, Type: rotator.Mutating},
			{Name: r.Validating, Type: rotator.Validating},
		},
		FieldOwner:             "inference-cache-controller",
		RequireLeaderElection:  true,
		ServerCertDuration:     r.Lifetime,
		LookaheadInterval:      r.Early,
		RotationCheckFrequency: r.Interval,
	})
	if err != nil {
		return fmt.Errorf("prepare the rotation of the webhooks' certificate: %w", err)
	}
	return nil
}

// narrow is a manager whose clients, made from its configuration, list and watch by name what the rotator
// would take whole: all Secrets of the namespace and all webhook configurations of the cluster. So a role
// that is bound to the names is enough.
type narrow struct {
	manager.Manager
	config *rest.Config
}

func narrowed(mgr manager.Manager, r Rotation) manager.Manager {
	config := rest.CopyConfig(mgr.GetConfig())
	names := map[string]string{
		"secrets":                         r.Secret.Name,
		"mutatingwebhookconfigurations":   r.Mutating,
		"validatingwebhookconfigurations": r.Validating,
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			name, found := names[path.Base(request.URL.Path)]
			if !found || request.Method != http.MethodGet {
				return next.RoundTrip(request)
			}
			request = request.Clone(request.Context())
			query := request.URL.Query()
			query.Set("fieldSelector", fields.OneTermEqualSelector("metadata.name", name).String())
			request.URL.RawQuery = query.Encode()
			return next.RoundTrip(request)
		})
	})
	return &narrow{Manager: mgr, config: config}
}

// GetConfig implements manager.Manager.
func (n *narrow) GetConfig() *rest.Config { return n.config }

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
