package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	kjson "sigs.k8s.io/json"

	"github.com/inferencecache/inferencecache/aggregator/contract"
)

// maxBodyBytes bounds a request.
const maxBodyBytes = 4 << 10

// Handler answers POST with the outcome of a probe: 200 also if stages failed, 400 if it cannot be
// run as asked.
func (p *Prober) Handler(log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "method not allowed: use POST", http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
		var req Request
		if err == nil {
			req, err = decode(body)
		}
		if err != nil {
			http.Error(w, refusal(err), http.StatusBadRequest)
			return
		}
		resp, err := p.Probe(r.Context(), req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		if len(resp.Errors) > 0 {
			log.Error("probe failed", "backend", resp.Backend, "errors", resp.Errors)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(resp) // fails only if the caller has left
	})
}

func refusal(err error) string {
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return fmt.Sprintf("request body too large: at most %d bytes are taken", maxBodyBytes)
	}
	return err.Error()
}

// decode reads a request. What it does not understand it refuses, by name.
func decode(body []byte) (Request, error) {
	var req Request
	unknown, err := kjson.UnmarshalStrict(body, &req)
	if err = errors.Join(append(unknown, err)...); err != nil {
		return req, fmt.Errorf("decode the probe request: %w", err)
	}
	for _, field := range []struct{ name, value string }{
		{"backend", req.Backend},
		{"model", req.Model},
		{"hashScheme", req.HashScheme},
	} {
		if field.value == "" {
			return req, fmt.Errorf("%s is missing", field.name)
		}
	}
	if reason := contract.CheckNames(replicaOf(req.Backend), Tenant, req.Model, req.HashScheme); reason != "" {
		return req, fmt.Errorf("backend, model and hashScheme must not be longer than %d bytes (%s)",
			contract.MaxNameBytes-len(replicaOf("")), reason)
	}
	return req, nil
}
