// Package auth lets only callers through whose bearer token the Kubernetes API server vouches for.
package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
)

// Audiences that tokens must be for unless configuration says otherwise.
const (
	ControllerAudience = "inferencecache.io/controller"
	PolicyAudience     = "inferencecache.io/policy"
)

// Results of a check, as the result label of a counter gives them.
const (
	resultOK        = "ok"
	resultUnauth    = "unauth"    // no token, or one that is not good for the audience
	resultForbidden = "forbidden" // a good token of somebody else
	resultError     = "error"     // nobody could tell
)

const (
	// reviewTimeout bounds one question to the API server.
	reviewTimeout = 5 * time.Second
	// maxReviews bounds the questions in flight of one endpoint. Callers past it are told to come
	// back.
	maxReviews = 16
	// maxTokenBytes bounds a token that is passed on. Tokens of service accounts are a tenth of it.
	maxTokenBytes = 16 << 10
)

// Reviewer asks the API server about a token.
type Reviewer interface {
	// Review says who the token belongs to. It returns an error only if it could not find out.
	Review(ctx context.Context, token, audience string) (*authenticationv1.TokenReviewStatus, error)
}

// Config is what an Authenticator needs. Every field but Now is required.
type Config struct {
	Reviewer Reviewer
	// Audience is what the token must have been issued for.
	Audience string
	// User is the only name that is let through, such as system:serviceaccount:NAMESPACE:NAME.
	User string
	// Results counts checks by result.
	Results *prometheus.CounterVec
	Log     *slog.Logger
	// Now tells the time; default time.Now.
	Now func() time.Time
}

// Authenticator guards one endpoint.
type Authenticator struct {
	Config
	cache   cache
	reviews singleflight.Group
	slots   chan struct{}
}

// New returns an Authenticator.
func New(config Config) *Authenticator {
	if config.Now == nil {
		config.Now = time.Now
	}
	for _, result := range []string{resultOK, resultUnauth, resultForbidden, resultError} {
		config.Results.WithLabelValues(result) // shown as 0, so that a rate can be taken of the first
	}
	return &Authenticator{Config: config, slots: make(chan struct{}, maxReviews)}
}

// Results returns the counter of an endpoint, for Config.
func Results(endpoint string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "inferencecache_" + endpoint + "_auth_total",
		Help: "Checks of callers of /" + endpoint + " by result: ok, unauth, forbidden, error.",
	}, []string{"result"})
}

// Handler calls next for callers that are let through and answers 401, 403 or 503 to others.
func (a *Authenticator) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		result := a.check(r)
		a.Results.WithLabelValues(result).Inc()
		switch result {
		case resultOK:
			next.ServeHTTP(w, r)
		case resultForbidden:
			http.Error(w, "forbidden", http.StatusForbidden)
		case resultError:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "token review unavailable", http.StatusServiceUnavailable)
		default:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "unauthorized", http.StatusUnauthorized)
		}
	})
}

func (a *Authenticator) check(r *http.Request) string {
	token := bearer(r.Header.Get("Authorization"))
	if token == "" || len(token) > maxTokenBytes {
		return resultUnauth
	}
	key := sha256.Sum256([]byte(token))
	if a.cache.has(key, a.Now()) {
		return resultOK
	}
	// Callers with the same token share one question, which must not fail because one of them left.
	ctx := context.WithoutCancel(r.Context())
	result, _, _ := a.reviews.Do(string(key[:]), func() (any, error) {
		result := a.review(ctx, token)
		if result == resultOK {
			a.cache.add(key, a.Now())
		}
		return result, nil
	})
	return result.(string)
}

// bearer returns the token of an Authorization header, "" if it has none.
func bearer(header string) string {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

func (a *Authenticator) review(ctx context.Context, token string) string {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	default:
		a.Log.Error("token review not possible", "error", errBusy)
		return resultError
	}
	status, err := a.Reviewer.Review(ctx, token, a.Audience)
	switch {
	case err != nil:
		a.Log.Error("token review not possible", "audience", a.Audience, "error", err)
		return resultError
	case !status.Authenticated:
		a.Log.Warn("token is not good", "audience", a.Audience, "reason", clip(status.Error))
		return resultUnauth
	// An authenticator that knows nothing of audiences vouches for any token and names none.
	case !slices.Contains(status.Audiences, a.Audience):
		a.Log.Warn("token is good for other audiences", "audience", a.Audience, "user", clip(status.User.Username))
		return resultUnauth
	case status.User.Username != a.User:
		a.Log.Warn("token is of another user", "want", a.User, "user", clip(status.User.Username))
		return resultForbidden
	default:
		return resultOK
	}
}

var errBusy = errors.New("too many reviews are in flight")

// clip bounds what is logged of what others wrote.
func clip(s string) string { return s[:min(len(s), 256)] }
