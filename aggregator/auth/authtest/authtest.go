// Package authtest is an API server that reviews tokens, for tests: TLS, the real API types, and the
// rules of a real one for audiences.
package authtest

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Token is a token that the server knows.
type Token struct {
	User      string
	Audiences []string
}

// Server reviews tokens.
type Server struct {
	// Kubeconfig is a file that leads to the server.
	Kubeconfig string

	server *httptest.Server
	mu     sync.Mutex
	tokens map[string]Token
	failed bool
	naive  bool
	asked  int
}

// credential is what a client must show to have tokens reviewed.
const credential = "credential-of-the-reviewing-process"

// Start runs a server until the test ends.
func Start(t testing.TB, tokens map[string]Token) *Server {
	t.Helper()
	s := &Server{tokens: tokens}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", s.review)
	s.server = httptest.NewTLSServer(mux)
	t.Cleanup(s.server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	s.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
	"clusters": [{"name": "c", "cluster": {"server": %q, "certificate-authority-data": %q}}],
	"users": [{"name": "u", "user": {"token": %q}}],
	"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}`,
		s.server.URL, base64.StdEncoding.EncodeToString(ca), credential)
	if err := os.WriteFile(s.Kubeconfig, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// Fail makes every review fail from now on, or work again.
func (s *Server) Fail(failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = failed
}

// IgnoreAudiences makes the server vouch for tokens as authenticators do that know nothing of
// audiences.
func (s *Server) IgnoreAudiences() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.naive = true
}

// Revoke makes the server forget a token.
func (s *Server) Revoke(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tokens, token)
}

// Asked counts the reviews so far.
func (s *Server) Asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *Server) review(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	review := &authenticationv1.TokenReview{}
	switch {
	case r.Header.Get("Authorization") != "Bearer "+credential:
		http.Error(w, "who asks?", http.StatusUnauthorized)
		return
	case s.failed:
		http.Error(w, "out of order", http.StatusInternalServerError)
		return
	}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.TypeMeta = metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "TokenReview"}
	review.Status = s.statusOf(review.Spec)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	if err := json.NewEncoder(w).Encode(review); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func (s *Server) statusOf(spec authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus {
	token, known := s.tokens[spec.Token]
	if !known {
		return authenticationv1.TokenReviewStatus{Error: "invalid bearer token"}
	}
	status := authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: token.User}}
	if s.naive {
		return status
	}
	for _, audience := range spec.Audiences {
		if slices.Contains(token.Audiences, audience) {
			status.Audiences = append(status.Audiences, audience)
		}
	}
	if len(status.Audiences) == 0 {
		return authenticationv1.TokenReviewStatus{Error: fmt.Sprintf("token audiences %q is invalid for the target audiences %q", token.Audiences, spec.Audiences)}
	}
	return status
}
