package auth_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/inferencecache/inferencecache/aggregator/auth"
	"github.com/inferencecache/inferencecache/aggregator/auth/authtest"
)

const controller = "system:serviceaccount:inference-cache-system:controller"

func tokens() map[string]authtest.Token {
	return map[string]authtest.Token{
		"good":            {User: controller, Audiences: []string{auth.ControllerAudience}},
		"for both":        {User: controller, Audiences: []string{auth.PolicyAudience, auth.ControllerAudience}},
		"other audience":  {User: controller, Audiences: []string{auth.PolicyAudience}},
		"of another user": {User: "system:serviceaccount:default:default", Audiences: []string{auth.ControllerAudience}},
	}
}

// guard is a guarded endpoint.
type guard struct {
	http.Handler
	results *prometheus.CounterVec
	served  atomic.Int64
	clock   time.Time
}

func newGuard(t *testing.T, reviewer auth.Reviewer) *guard {
	t.Helper()
	g := &guard{results: auth.Results("snapshot"), clock: time.Unix(1_700_000_000, 0)}
	g.Handler = auth.New(auth.Config{
		Reviewer: reviewer, Audience: auth.ControllerAudience, User: controller, Results: g.results,
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return g.clock },
	}).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { g.served.Add(1) }))
	return g
}

func kubernetes(t *testing.T, s *authtest.Server) auth.Reviewer {
	t.Helper()
	k, err := auth.NewKubernetes(s.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (g *guard) ask(header string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/snapshot", nil)
	if header != "" {
		r.Header.Set("Authorization", header)
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w
}

func TestCallersAreToldApart(t *testing.T) {
	server := authtest.Start(t, tokens())
	for name, c := range map[string]struct {
		header string
		code   int
		result string
	}{
		"a good token":                             {"Bearer good", 200, "ok"},
		"a token that is good for two audiences":   {"Bearer for both", 200, "ok"},
		"a scheme in lower case and spaces around": {"bearer   good ", 200, "ok"},
		"no header":                                   {"", 401, "unauth"},
		"another scheme":                              {"Basic good", 401, "unauth"},
		"a scheme without a token":                    {"Bearer", 401, "unauth"},
		"a token of spaces":                           {"Bearer    ", 401, "unauth"},
		"a token that nobody knows":                   {"Bearer guessed", 401, "unauth"},
		"a token that is good for another audience":   {"Bearer other audience", 401, "unauth"},
		"a token of another user":                     {"Bearer of another user", 403, "forbidden"},
		"a token that is longer than any":             {"Bearer " + strings.Repeat("x", 17<<10), 401, "unauth"},
		"a good token that is not all of the header":  {"Bearer good, Bearer x", 401, "unauth"},
		"a good token in the case of another":         {"Bearer GOOD", 401, "unauth"},
		"a token that is a prefix of one that is":     {"Bearer goo", 401, "unauth"},
		"a bearer token that is followed by a comma ": {"Bearer good,", 401, "unauth"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGuard(t, kubernetes(t, server))
			w := g.ask(c.header)
			if w.Code != c.code {
				t.Errorf("status %d %q, want %d", w.Code, w.Body, c.code)
			}
			if served := g.served.Load() == 1; served != (c.code == 200) {
				t.Errorf("served %v", served)
			}
			if n := testutil.ToFloat64(g.results.WithLabelValues(c.result)); n != 1 {
				t.Errorf("result %s counted %v times", c.result, n)
			}
			if n := testutil.CollectAndCount(g.results); n != 4 {
				t.Errorf("%d results are shown, want all four", n)
			}
		})
	}
}

func TestTokenOfAServerThatIgnoresAudiencesIsRefused(t *testing.T) {
	server := authtest.Start(t, tokens())
	server.IgnoreAudiences()
	if w := newGuard(t, kubernetes(t, server)).ask("Bearer good"); w.Code != http.StatusUnauthorized {
		t.Errorf("status %d", w.Code)
	}
}

func TestAServerThatDoesNotAnswerIsNoRefusal(t *testing.T) {
	server := authtest.Start(t, tokens())
	g := newGuard(t, kubernetes(t, server))
	server.Fail(true)
	w := g.ask("Bearer good")
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "token review unavailable") {
		t.Errorf("status %d %q", w.Code, w.Body)
	}
	server.Fail(false)
	if w := g.ask("Bearer good"); w.Code != http.StatusOK {
		t.Errorf("status %d once the server is back", w.Code)
	}
}

func TestGoodTokensAreRememberedForAWhile(t *testing.T) {
	server := authtest.Start(t, tokens())
	g := newGuard(t, kubernetes(t, server))
	for range 3 {
		g.ask("Bearer good")
	}
	if n := server.Asked(); n != 1 {
		t.Errorf("asked %d times, want once", n)
	}
	server.Revoke("good")
	g.clock = g.clock.Add(29 * time.Second)
	if w := g.ask("Bearer good"); w.Code != http.StatusOK {
		t.Errorf("status %d within the time", w.Code)
	}
	g.clock = g.clock.Add(time.Second)
	if w := g.ask("Bearer good"); w.Code != http.StatusUnauthorized {
		t.Errorf("status %d after it", w.Code)
	}
}

func TestBadTokensAreNotRemembered(t *testing.T) {
	server := authtest.Start(t, tokens())
	g := newGuard(t, kubernetes(t, server))
	for range 3 {
		g.ask("Bearer guessed")
		g.ask("Bearer of another user")
	}
	if n := server.Asked(); n != 6 {
		t.Errorf("asked %d times, want each time", n)
	}
}

// reviewer answers with a function.
type reviewer func(token string) (*authenticationv1.TokenReviewStatus, error)

func (f reviewer) Review(_ context.Context, token, _ string) (*authenticationv1.TokenReviewStatus, error) {
	return f(token)
}

func vouch(string) (*authenticationv1.TokenReviewStatus, error) {
	return &authenticationv1.TokenReviewStatus{
		Authenticated: true, Audiences: []string{auth.ControllerAudience},
		User: authenticationv1.UserInfo{Username: controller},
	}, nil
}

func TestNoMoreTokensAreRememberedThanTheBound(t *testing.T) {
	asked := 0
	g := newGuard(t, reviewer(func(token string) (*authenticationv1.TokenReviewStatus, error) {
		asked++
		return vouch(token)
	}))
	for i := range 33 { // one more than the bound, each a second after the one before
		g.ask(fmt.Sprint("Bearer ", i))
		g.clock = g.clock.Add(time.Millisecond)
	}
	g.ask("Bearer 32")
	if asked != 33 {
		t.Errorf("asked %d times, the last token is forgotten", asked)
	}
	if g.ask("Bearer 0"); asked != 34 {
		t.Errorf("asked %d times, the oldest token is remembered past the bound", asked)
	}
}

func TestCallersWithOneTokenShareOneReview(t *testing.T) {
	release := make(chan struct{})
	var asked atomic.Int64
	g := newGuard(t, reviewer(func(token string) (*authenticationv1.TokenReviewStatus, error) {
		asked.Add(1)
		<-release
		return vouch(token)
	}))
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			if w := g.ask("Bearer good"); w.Code != http.StatusOK {
				t.Errorf("status %d", w.Code)
			}
		})
	}
	time.AfterFunc(20*time.Millisecond, func() { close(release) })
	callers.Wait()
	if n := asked.Load(); n > 8 || g.served.Load() != 8 {
		t.Errorf("asked %d times, served %d", n, g.served.Load())
	}
}

func TestReviewsInFlightAreBounded(t *testing.T) {
	release := make(chan struct{})
	var inFlight atomic.Int64
	g := newGuard(t, reviewer(func(token string) (*authenticationv1.TokenReviewStatus, error) {
		inFlight.Add(1)
		<-release
		return nil, errors.New("late")
	}))
	var callers sync.WaitGroup
	for i := range 16 {
		callers.Go(func() { g.ask(fmt.Sprint("Bearer ", i)) })
	}
	for inFlight.Load() < 16 {
		time.Sleep(time.Millisecond)
	}
	if w := g.ask("Bearer one more"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d", w.Code)
	}
	close(release)
	callers.Wait()
}

func TestKubeconfigThatCannotBeReadIsAnError(t *testing.T) {
	if _, err := auth.NewKubernetes(t.TempDir() + "/none"); err == nil || !strings.Contains(err.Error(), "kubeconfig") {
		t.Errorf("error %v", err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := auth.NewKubernetes(""); err == nil || !strings.Contains(err.Error(), "kubeconfig") {
		t.Errorf("error %v outside a cluster", err)
	}
}
